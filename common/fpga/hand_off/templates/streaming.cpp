
namespace {

constexpr int MATRIX_PORTS = $matrix_ports;
constexpr int VECTORS = $vectors;  // that use each word of the matrix
constexpr int LANES = WORD_BYTES * 8 / ELEMENT_BITS;  // elements of a word

int64_t words_of(int64_t elements) { return (elements + LANES - 1) / LANES; }

element_t matrix_element($matrix_arguments, int port, reader_t &reader, int64_t index) {
#pragma HLS INLINE
    switch (port) {
$matrix_cases
    }
}

element_t vector_element($x_arguments, int vector, reader_t &reader, int64_t index) {
#pragma HLS INLINE
    switch (vector) {
$x_cases
    }
}

void put($y_arguments, int vector, writer_t &writer, int64_t index, value_t value) {
#pragma HLS INLINE
    switch (vector) {
$y_cases
    }
}

// A row of every port at once: each takes a word of the matrix in every cycle, and its vectors a word each.
void row_of_each_port($matrix_arguments, $x_arguments, sum_t sums[MATRIX_PORTS][VECTORS], int64_t matrix, int64_t x,
                      int64_t row_of_port, int64_t vector, int64_t columns, int32_t x_zero) {
    reader_t rows[MATRIX_PORTS], vectors[VECTORS];
    for (int p = 0; p < MATRIX_PORTS; ++p) rows[p] = reader_t(matrix);
    for (int v = 0; v < VECTORS; ++v) vectors[v] = reader_t(x);
word:
    for (int64_t word = 0; word < words_of(columns); ++word) {
#pragma HLS PIPELINE II=1
    port:
        for (int p = 0; p < MATRIX_PORTS; ++p) {
#pragma HLS UNROLL
        vector:
            for (int v = 0; v < VECTORS; ++v) {
#pragma HLS UNROLL
                sum_t sum = word == 0 ? sum_t(0) : sums[p][v];
            lane:
                for (int lane = 0; lane < LANES; ++lane) {
#pragma HLS UNROLL
                    if (word * LANES + lane >= columns) continue;
                    const int64_t along = word * LANES + lane, line = words_of(columns) * LANES;
                    const sum_t a = sum_t(matrix_element($matrix_names, p, rows[p], row_of_port * line + along));
                    const sum_t b = sum_t(vector_element($x_names, v, vectors[v], vector * line + along));
                    sum += a * (b - sum_t(x_zero));
                }
                sums[p][v] = sum;
            }
        }
    }
}

}  // namespace

// One call: `products` matrices of (rows, columns), each times `vectors` vectors. Bases are in words of a port. Row r of a
// matrix is on port r % MATRIX_PORTS and begins with a word, behind the port's rows of the same matrix, which are as
// many on every port. Vector v is at port x(v % VECTORS) and begins with a word; vectors of one product follow each
// other, and each product has ceil(vectors / VECTORS) of them on a port. Its results are at y(v % VECTORS), likewise. Port x0 has
// the parameters, {int32 bias, float scale} for each row of all products, and the program with its operands, whose
// coordinates are (0, product, vector, row).
extern "C" void $design($all_arguments, int64_t matrix, int64_t x, int64_t y, int64_t parameters, int64_t steps,
                        int32_t products, int32_t vectors, int32_t rows, int32_t columns, int32_t x_zero,
                        int32_t y_zero, float least, float most) {
$interfaces
    static sum_t sums[MATRIX_PORTS][VECTORS];
#pragma HLS ARRAY_PARTITION variable=sums dim=0 complete
    static program_t program;
    static int16_t table[TABLE_ENTRIES];
    load_program(x0, steps, program, table);
    operands_t operands(program);
    reader_t bias(parameters), scale(parameters);
    writer_t results[VECTORS];
    for (int v = 0; v < VECTORS; ++v) results[v] = writer_t(y);
    const int64_t rows_of_port = (int64_t(rows) + MATRIX_PORTS - 1) / MATRIX_PORTS;
    const int64_t turns = (int64_t(vectors) + VECTORS - 1) / VECTORS;
product:
    for (int64_t product = 0; product < products; ++product) {
    turn:
        for (int64_t turn = 0; turn < turns; ++turn) {
            const int64_t vector = product * turns + turn;
        row:
            for (int64_t row = 0; row < rows_of_port; ++row) {
                row_of_each_port($matrix_names, $x_names, sums, matrix, x, product * rows_of_port + row, vector,
                                 columns, x_zero);
            result:
                for (int p = 0; p < MATRIX_PORTS; ++p) {
                    for (int v = 0; v < VECTORS; ++v) {
                        const int64_t r = row * MATRIX_PORTS + p, of_all = product * rows + r;
                        if (r >= rows || turn * VECTORS + v >= vectors) continue;
                        const value_t value = epilogue(sums[p][v], sum_t(bias.value<int32_t>(x0, 2 * of_all)),
                                                       scale.value<float>(x0, 2 * of_all + 1), y_zero, least, most);
                        const int64_t at[4] = {0, product, turn * VECTORS + v, r};
                        put($y_names, v, results[v], vector * words_of(rows) * LANES + r,
                            stepped(x0, program, table, operands, 0, int(program.steps_after), at, value));
                    }
                }
            }
        }
    }
    for (int v = 0; v < VECTORS; ++v) {
        switch (v) {
$flush_cases
        }
    }
}

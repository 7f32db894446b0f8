
namespace {

constexpr int QUERY_ROWS = $query_rows;  // of a tile
constexpr int ROW_LANES = $row_lanes;  // of a row in each product
constexpr int EXP_LANES = $exp_lanes;  // exponentials per cycle
constexpr int KEY_BLOCK = $key_block;
constexpr int HEADS = $heads_parallel;  // at once
constexpr int HEAD_DIM = $head_dim;  // the longest that a tile holds
constexpr int64_t BUFFER_ELEMENTS = $buffer_elements;  // keys and values that a unit keeps

enum operand_t { QUERY, KEY, VALUE };

// One head of one call.
struct head_t {
    int64_t batch, head, queries, keys, key_dim, value_dim;
    bool is_kept;  // keys and values are on the chip; else every tile reads them again

    head_t(const program_t &program, int64_t index)
        : batch(index / int64_t(program.extent[1])),
          head(index % int64_t(program.extent[1])),
          queries(int64_t(program.extent[2])),
          keys(int64_t(program.extent[3])),
          key_dim(int64_t(program.setting[0])),
          value_dim(int64_t(program.setting[1])),
          is_kept(keys * (key_dim + value_dim) <= BUFFER_ELEMENTS) {}
};

// What a tile of query rows has come to: largest score, sum of exponentials and result of each row.
struct tile_t {
    total_t largest[QUERY_ROWS], sum[QUERY_ROWS];
    sum_t result[QUERY_ROWS][HEAD_DIM];
};

element_t loaded($port_arguments, const program_t &program, operands_t &operands, const head_t &head, int operand,
                 int64_t line, int64_t along) {
#pragma HLS INLINE
    const int64_t at[4] = {head.batch, head.head, line, along};
    return operands.of[operand].element($port_names, program.operand[operand].place(at));
}

void load_keys_and_values($port_arguments, const program_t &program, operands_t &operands, const head_t &head,
                          element_t kept[BUFFER_ELEMENTS]) {
    const int64_t width = head.key_dim + head.value_dim;
key:
    for (int64_t i = 0; i < head.keys * width; ++i) {
#pragma HLS PIPELINE II=1
        const int64_t key = i / width, along = i % width;
        const bool is_key = along < head.key_dim;
        kept[i] = loaded($port_names, program, operands, head, is_key ? KEY : VALUE, key,
                         is_key ? along : along - head.key_dim);
    }
}

// Element `along` of a key, or of a value behind the elements of its key, without its zero point.
sum_t key_or_value($port_arguments, const program_t &program, operands_t &operands, const head_t &head,
                   const element_t kept[BUFFER_ELEMENTS], bool is_key, int64_t key, int64_t along) {
#pragma HLS INLINE
    const int operand = is_key ? KEY : VALUE;
    const int64_t place = key * (head.key_dim + head.value_dim) + (is_key ? along : head.key_dim + along);
    const element_t raw = head.is_kept ? kept[place]
                                       : loaded($port_names, program, operands, head, operand, key, along);
    return sum_t(raw) - sum_t(program.operand[operand].zero);
}

// Scores of a block: each is the product of a query and a key, behind the first steps a logarithm to base 2.
void score($port_arguments, const program_t &program, const int16_t table[TABLE_ENTRIES], operands_t &operands,
           const head_t &head, const element_t query[QUERY_ROWS][HEAD_DIM], const element_t kept[BUFFER_ELEMENTS],
           int64_t first_query, int64_t first_key, int rows, int keys, value_t scores[QUERY_ROWS][KEY_BLOCK]) {
    sum_t sums[QUERY_ROWS];
#pragma HLS ARRAY_PARTITION variable=sums complete
key:
    for (int k = 0; k < keys; ++k) {
    along:
        for (int64_t first = 0; first < head.key_dim; first += ROW_LANES) {
#pragma HLS PIPELINE II=$ii_cycles
        row:
            for (int r = 0; r < rows; ++r) {
#pragma HLS UNROLL
                sum_t sum = first == 0 ? sum_t(0) : sums[r];
            lane:
                for (int lane = 0; lane < ROW_LANES; ++lane) {
#pragma HLS UNROLL
                    const int64_t along = first + lane;
                    if (along >= head.key_dim) continue;
                    const sum_t one = sum_t(query[r][along]) - sum_t(program.operand[QUERY].zero);
                    sum += one * key_or_value($port_names, program, operands, head, kept, true, first_key + k, along);
                }
                sums[r] = sum;
            }
        }
        for (int r = 0; r < rows; ++r) {
            const int64_t at[4] = {head.batch, head.head, first_query + r, first_key + k};
            scores[r][k] = stepped($port_names, program, table, operands, 0, int(program.steps_before), at,
                                   whole(scaled_down(total_t(sums[r]), int64_t(program.setting[2]))));
        }
    }
}

// Exponentials of a block, relative to the largest score of the row so far. A larger one rescales sum and result.
void weigh(const value_t scores[QUERY_ROWS][KEY_BLOCK], int rows, int keys, int64_t value_dim, bool is_first,
           tile_t &tile, element_t weights[QUERY_ROWS][KEY_BLOCK]) {
row:
    for (int r = 0; r < rows; ++r) {
        total_t most = is_first ? total_t(scores[r][0]) : tile.largest[r];
        for (int k = 0; k < keys; ++k) most = total_t(scores[r][k]) > most ? total_t(scores[r][k]) : most;
        if (is_first) {
            tile.sum[r] = 0;
            for (int64_t d = 0; d < value_dim; ++d) tile.result[r][d] = 0;
        } else if (most != tile.largest[r]) {
            const total_t power = exponential(most - tile.largest[r]);
            tile.sum[r] = rescaled(tile.sum[r], power);
            for (int64_t d = 0; d < value_dim; ++d) tile.result[r][d] = sum_t(rescaled(tile.result[r][d], power));
        }
        tile.largest[r] = most;
    exponential:
        for (int k = 0; k < keys; ++k) {
#pragma HLS PIPELINE II=$ii_cycles
#pragma HLS UNROLL factor=$exp_lanes
            weights[r][k] = element_t(as_operand(exponential(most - total_t(scores[r][k]))));
            tile.sum[r] += weights[r][k];
        }
    }
}

void add_values($port_arguments, const program_t &program, operands_t &operands, const head_t &head,
                const element_t kept[BUFFER_ELEMENTS], int64_t first_key, int rows, int keys,
                const element_t weights[QUERY_ROWS][KEY_BLOCK], tile_t &tile) {
key:
    for (int k = 0; k < keys; ++k) {
    along:
        for (int64_t first = 0; first < head.value_dim; first += ROW_LANES) {
#pragma HLS PIPELINE II=$ii_cycles
        row:
            for (int r = 0; r < rows; ++r) {
#pragma HLS UNROLL
            lane:
                for (int lane = 0; lane < ROW_LANES; ++lane) {
#pragma HLS UNROLL
                    const int64_t along = first + lane;
                    if (along >= head.value_dim) continue;
                    const sum_t value =
                        key_or_value($port_names, program, operands, head, kept, false, first_key + k, along);
                    tile.result[r][along] += sum_t(weights[r][k]) * value;
                }
            }
        }
    }
}

void tile_of($port_arguments, const program_t &program, const int16_t table[TABLE_ENTRIES], operands_t &operands,
             const head_t &head, const element_t kept[BUFFER_ELEMENTS], int64_t first_query, writer_t &output) {
    element_t query[QUERY_ROWS][HEAD_DIM];
    value_t scores[QUERY_ROWS][KEY_BLOCK];
    element_t weights[QUERY_ROWS][KEY_BLOCK];
    tile_t tile = {};
#pragma HLS ARRAY_PARTITION variable=query dim=1 complete
#pragma HLS ARRAY_PARTITION variable=query dim=2 cyclic factor=$row_lanes
#pragma HLS ARRAY_PARTITION variable=scores dim=1 complete
#pragma HLS ARRAY_PARTITION variable=weights dim=1 complete
#pragma HLS ARRAY_PARTITION variable=tile.result dim=1 complete
#pragma HLS ARRAY_PARTITION variable=tile.result dim=2 cyclic factor=$row_lanes
    const int rows = int(head.queries - first_query < QUERY_ROWS ? head.queries - first_query : QUERY_ROWS);
query_row:
    for (int r = 0; r < rows; ++r) {
        for (int64_t along = 0; along < head.key_dim; ++along) {
#pragma HLS PIPELINE II=1
            query[r][along] = loaded($port_names, program, operands, head, QUERY, first_query + r, along);
        }
    }
block:
    for (int64_t first = 0; first < head.keys; first += KEY_BLOCK) {
#pragma HLS DATAFLOW
        const int keys = int(head.keys - first < KEY_BLOCK ? head.keys - first : KEY_BLOCK);
        score($port_names, program, table, operands, head, query, kept, first_query, first, rows, keys, scores);
        weigh(scores, rows, keys, head.value_dim, first == 0, tile, weights);
        add_values($port_names, program, operands, head, kept, first, rows, keys, weights, tile);
    }
result:
    for (int r = 0; r < rows; ++r) {
        for (int64_t along = 0; along < head.value_dim; ++along) {
#pragma HLS PIPELINE II=$ii_cycles
            const int64_t at[4] = {head.batch, head.head, first_query + r, along};
            const value_t value = stepped($port_names, program, table, operands, int(program.steps_before),
                                          int(program.steps_before + program.steps_after), at,
                                          whole(ratio(tile.result[r][along], tile.sum[r], 8)));
            output.element($port_names, program.result.place(at), element_t(value));
        }
    }
}

}  // namespace

// One call; `steps` is a program, in words of a port. Its extents are batch, heads, queries, keys; settings 0 and 1 are
// the lengths of a key and of a value, setting 2 a shift of the products (int16 needs one); operands 0, 1, 2 are queries, keys, values by batch, head, line, element, and
// further ones (a mask) have the coordinates of a score. The first steps make a logarithm to base 2 of a product of query
// and key, with 16 fraction bits in integer formats; the last steps get the mean of the values, with 8.
extern "C" void $design($port_arguments, int64_t steps) {
$interfaces
    static element_t kept[HEADS][BUFFER_ELEMENTS];
#pragma HLS ARRAY_PARTITION variable=kept dim=1 complete
#pragma HLS ARRAY_RESHAPE variable=kept dim=2 cyclic factor=$row_lanes
#pragma HLS BIND_STORAGE variable=kept type=ram_2p impl=$kept_storage
    static program_t program;
    static int16_t table[TABLE_ENTRIES];
    load_program($port_names, steps, program, table);
    const int64_t heads = int64_t(program.extent[0] * program.extent[1]);
heads:
    for (int64_t first = 0; first < heads; first += HEADS) {
    head:
        for (int h = 0; h < HEADS; ++h) {
#pragma HLS UNROLL
            if (first + h >= heads) continue;
            const head_t head(program, first + h);
            operands_t operands(program);
            writer_t output(int64_t(program.result.base));
            if (head.is_kept) load_keys_and_values($port_names, program, operands, head, kept[h]);
        tile:
            for (int64_t query = 0; query < head.queries; query += QUERY_ROWS) {
                tile_of($port_names, program, table, operands, head, kept[h], query, output);
            }
            output.flush($port_names);
        }
    }
}

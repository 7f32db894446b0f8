// Output-stationary systolic array: c (ROWS x COLS) = a (ROWS x K) times b (K x COLS), K given at run time as a number
// of steps of SIMD products: k_count = ceil(K / SIMD), and what the last step has too much of is zero.
//
// In each cycle in which `feed` is high, SIMD columns of a and SIMD rows of b are taken from the ports: product i of row
// r in a[(SIMD*r + i)*WIDTH], and likewise b. Operands move one column to the right and one row down per cycle, so step
// k of row r and column c is added in cycle r + c + k. Multipliers are shared by blocks of PACK_ROWS x PACK_COLS
// products (see block.v); a block takes both operands when its first row and column are due and adds its products, from
// registers behind the multipliers, when its last row and column are due.
//
// OVERLAP = 0: when the last product of the fold is in, the accumulators of a column become a shift register and leave
// at the bottom, last row first, ROWS cycles long. A fold takes K + (ROWS + COLS - 2) + ROWS cycles.
// OVERLAP = 1: each sum moves to a second register as soon as it is complete and leaves from there, column c delayed by
// c cycles, while the next fold is computed. A column leaves in segments of DRAIN rows at the same time, each at its own
// bottom, last row first; the topmost one has the rest: max(k_count, DRAIN) cycles from fold to fold, and
// ROWS + DRAIN + COLS + k_count - 2 for one fold. Without overlap DRAIN is ROWS.
//
// PIPELINED: operands have registers where they enter, and products as block.v says; sums leave 2 + log2(SIMD) cycles
// later with 1, and 4 + log2(SIMD) with 2, once per call.
module systolic_array #(
    parameter ROWS = 4,
    parameter COLS = 4,
    parameter WIDTH = 8,
    parameter ACC_WIDTH = 32,
    parameter PACK_ROWS = 1,
    parameter PACK_COLS = 2,
    parameter COUNT_WIDTH = 16,
    parameter OVERLAP = 0,
    parameter SIMD = 1,
    parameter DRAIN = ROWS,
    parameter SEGMENTS = (ROWS + DRAIN - 1) / DRAIN,
    parameter PIPELINED = 0
) (
    input clk,
    input rst,  // hold for 2 * ROWS + COLS cycles: the delays have no reset and are flushed
    input start,
    input [COUNT_WIDTH-1:0] k_count,
    input [COUNT_WIDTH-1:0] fold_count,
    input [ROWS*SIMD*WIDTH-1:0] a,
    input [COLS*SIMD*WIDTH-1:0] b,
    output feed,
    output [SEGMENTS*COLS-1:0] result_valid,  // bit COLS*g + c: segment g (0 is the topmost) of column c
    output [SEGMENTS*COLS*ACC_WIDTH-1:0] result
);
  wire last;
  wire [SEGMENTS-1:0] drain;
  wire [ROWS-1:0] drain_rows;
  systolic_control #(
      .ROWS(ROWS), .COLS(COLS), .COUNT_WIDTH(COUNT_WIDTH), .OVERLAP(OVERLAP), .DRAIN(DRAIN), .SEGMENTS(SEGMENTS)
  ) control (
      .clk(clk), .rst(rst), .start(start), .k_count(k_count), .fold_count(fold_count),
      .feed(feed), .last(last), .drain(drain), .shift(drain_rows)
  );
  // The comparisons of the schedule end in these registers.
  localparam A_BITS = ROWS * SIMD * WIDTH, B_BITS = COLS * SIMD * WIDTH;
  wire core_feed, core_last;
  wire [SEGMENTS-1:0] core_drain;
  wire [ROWS-1:0] core_drain_rows;
  wire [A_BITS-1:0] core_a;
  wire [B_BITS-1:0] core_b;
  systolic_delay #(.WIDTH(2 + SEGMENTS + ROWS + A_BITS + B_BITS), .DEPTH(PIPELINED != 0 ? 1 : 0)) entry (
      .clk(clk), .in({feed, last, drain, drain_rows, a, b}),
      .out({core_feed, core_last, core_drain, core_drain_rows, core_a, core_b})
  );
  systolic_core #(
      .ROWS(ROWS), .COLS(COLS), .WIDTH(WIDTH), .ACC_WIDTH(ACC_WIDTH), .PACK_ROWS(PACK_ROWS), .PACK_COLS(PACK_COLS),
      .OVERLAP(OVERLAP), .SIMD(SIMD), .DRAIN(DRAIN), .SEGMENTS(SEGMENTS), .PIPELINED(PIPELINED)
  ) core (
      .clk(clk), .rst(rst), .feed(core_feed), .last(core_last), .drain(core_drain), .drain_rows(core_drain_rows),
      .a(core_a), .b(core_b),
      .result_valid(result_valid), .result(result)
  );
endmodule

// The elements, without the schedule: operands count where `feed` is high, and `last` marks the last step of a fold.
// PIPELINED: products have registers, and so does each level of the tree that adds them (see block.v). Sums leave
// 1 + log2(SIMD) cycles later with 1, and 3 + log2(SIMD) with 2.
module systolic_core #(
    parameter ROWS = 4,
    parameter COLS = 4,
    parameter WIDTH = 8,
    parameter ACC_WIDTH = 32,
    parameter PACK_ROWS = 1,
    parameter PACK_COLS = 2,
    parameter OVERLAP = 1,
    parameter SIMD = 1,
    parameter DRAIN = ROWS,
    parameter SEGMENTS = (ROWS + DRAIN - 1) / DRAIN,
    parameter PIPELINED = 0
) (
    input clk,
    input rst,
    input feed,
    input last,
    input [SEGMENTS-1:0] drain,
    input [ROWS-1:0] drain_rows,
    input [ROWS*SIMD*WIDTH-1:0] a,
    input [COLS*SIMD*WIDTH-1:0] b,
    output [SEGMENTS*COLS-1:0] result_valid,  // bit COLS*g + c: segment g (0 is the topmost) of column c
    output [SEGMENTS*COLS*ACC_WIDTH-1:0] result
);
  localparam BLOCK_ROWS = (ROWS + PACK_ROWS - 1) / PACK_ROWS;
  localparam BLOCK_COLS = (COLS + PACK_COLS - 1) / PACK_COLS;
  localparam A_WIDTH = SIMD * (PACK_ROWS == 2 ? 2 * WIDTH + 1 : WIDTH);
  localparam B_WIDTH = SIMD * (PACK_COLS == 2 ? 2 * WIDTH + 1 : WIDTH);

  localparam LATER = PIPELINED == 0 ? 0 : (PIPELINED == 2 ? 3 : 1) + $clog2(SIMD);

  // Links between neighbours: a_link[i][j] enters block (i, j) from the left, with its `last` mark; b_link from above.
  wire [BLOCK_ROWS*(BLOCK_COLS+1)*A_WIDTH-1:0] a_link;
  wire [BLOCK_ROWS*(BLOCK_COLS+1)-1:0] last_link;
  wire [(BLOCK_ROWS+1)*BLOCK_COLS*B_WIDTH-1:0] b_link;
  wire [ROWS*COLS*ACC_WIDTH-1:0] sums, above;
  wire [COLS*ROWS-1:0] shift;  // bit ROWS*c + r: row r of column c takes the sum above it

  genvar i, j, h, g;
  generate
    for (i = 0; i < ROWS; i = i + 1) begin : segment
      // Row ROWS - 1 ends a segment, and so does every DRAIN-th row above it.
      if (i == 0 || (ROWS - i) % DRAIN == 0) begin : begins
        assign above[i*COLS*ACC_WIDTH+:COLS*ACC_WIDTH] = 0;
      end else begin : goes_on
        assign above[i*COLS*ACC_WIDTH+:COLS*ACC_WIDTH] = sums[(i-1)*COLS*ACC_WIDTH+:COLS*ACC_WIDTH];
      end
    end
    for (g = 0; g < SEGMENTS; g = g + 1) begin : leave
      localparam BOTTOM = ROWS - 1 - (SEGMENTS - 1 - g) * DRAIN;
      assign result[g*COLS*ACC_WIDTH+:COLS*ACC_WIDTH] = sums[BOTTOM*COLS*ACC_WIDTH+:COLS*ACC_WIDTH];
    end
    for (i = 0; i < BLOCK_ROWS; i = i + 1) begin : left
      localparam HEIGHT = ROWS - i * PACK_ROWS < PACK_ROWS ? 1 : PACK_ROWS;
      wire [A_WIDTH-1:0] packed_a;
      systolic_pack #(.COUNT(HEIGHT), .SIMD(SIMD), .WIDTH(WIDTH), .OUT_WIDTH(A_WIDTH / SIMD)) pack (
          .in(a[i*PACK_ROWS*SIMD*WIDTH+:HEIGHT*SIMD*WIDTH]), .enable(feed), .out(packed_a)
      );
      systolic_delay #(.WIDTH(A_WIDTH), .DEPTH(i * PACK_ROWS)) skew (
          .clk(clk), .in(packed_a), .out(a_link[i*(BLOCK_COLS+1)*A_WIDTH+:A_WIDTH])
      );
      systolic_delay #(.WIDTH(1), .DEPTH(i * PACK_ROWS)) skew_last (
          .clk(clk), .in(last), .out(last_link[i*(BLOCK_COLS+1)])
      );
    end
    for (j = 0; j < BLOCK_COLS; j = j + 1) begin : top
      localparam SPAN = COLS - j * PACK_COLS < PACK_COLS ? 1 : PACK_COLS;
      wire [B_WIDTH-1:0] packed_b;
      systolic_pack #(.COUNT(SPAN), .SIMD(SIMD), .WIDTH(WIDTH), .OUT_WIDTH(B_WIDTH / SIMD)) pack (
          .in(b[j*PACK_COLS*SIMD*WIDTH+:SPAN*SIMD*WIDTH]), .enable(1'b1), .out(packed_b)
      );
      systolic_delay #(.WIDTH(B_WIDTH), .DEPTH(j * PACK_COLS)) skew (
          .clk(clk), .in(packed_b), .out(b_link[j*B_WIDTH+:B_WIDTH])
      );
    end
    for (j = 0; j < COLS; j = j + 1) begin : bottom
      // Without overlap all columns leave together, with it those of a block when the last of them is complete.
      localparam BLOCK_END = j / PACK_COLS * PACK_COLS + PACK_COLS - 1;
      localparam DUE = BLOCK_END < COLS ? BLOCK_END : COLS - 1;
      wire [SEGMENTS-1:0] valid;
      systolic_delay #(.WIDTH(ROWS + SEGMENTS), .DEPTH((OVERLAP ? DUE : 0) + LATER)) skew_shift (
          .clk(clk), .in({drain, drain_rows}), .out({valid, shift[j*ROWS+:ROWS]})
      );
      for (g = 0; g < SEGMENTS; g = g + 1) begin : of_segment
        assign result_valid[g*COLS+j] = valid[g];
      end
    end
    for (i = 0; i < BLOCK_ROWS; i = i + 1) begin : row
      for (j = 0; j < BLOCK_COLS; j = j + 1) begin : col
        localparam HEIGHT = ROWS - i * PACK_ROWS < PACK_ROWS ? 1 : PACK_ROWS;
        localparam SPAN = COLS - j * PACK_COLS < PACK_COLS ? 1 : PACK_COLS;
        wire [HEIGHT*SPAN*ACC_WIDTH-1:0] block_sums, block_above;
        wire [HEIGHT-1:0] block_shift = shift[j*PACK_COLS*ROWS+i*PACK_ROWS+:HEIGHT];
        systolic_block #(
            .HEIGHT(HEIGHT), .SPAN(SPAN), .WIDTH(WIDTH), .ACC_WIDTH(ACC_WIDTH), .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH),
            .OVERLAP(OVERLAP), .SIMD(SIMD), .PIPELINED(PIPELINED),
            .RIGHT(j < BLOCK_COLS - 1), .DOWN(i < BLOCK_ROWS - 1)
        ) block (
            .clk(clk), .rst(rst), .shift(block_shift),
            .a(a_link[(i*(BLOCK_COLS+1)+j)*A_WIDTH+:A_WIDTH]),
            .last(last_link[i*(BLOCK_COLS+1)+j]),
            .b(b_link[(i*BLOCK_COLS+j)*B_WIDTH+:B_WIDTH]),
            .above(block_above),
            .a_next(a_link[(i*(BLOCK_COLS+1)+j+1)*A_WIDTH+:A_WIDTH]),
            .last_next(last_link[i*(BLOCK_COLS+1)+j+1]),
            .b_next(b_link[((i+1)*BLOCK_COLS+j)*B_WIDTH+:B_WIDTH]),
            .sums(block_sums)
        );
        for (h = 0; h < HEIGHT; h = h + 1) begin : out
          assign sums[((i*PACK_ROWS+h)*COLS+j*PACK_COLS)*ACC_WIDTH+:SPAN*ACC_WIDTH] =
              block_sums[h*SPAN*ACC_WIDTH+:SPAN*ACC_WIDTH];
          assign block_above[h*SPAN*ACC_WIDTH+:SPAN*ACC_WIDTH] =
              above[((i*PACK_ROWS+h)*COLS+j*PACK_COLS)*ACC_WIDTH+:SPAN*ACC_WIDTH];
        end
      end
    end
  endgenerate
  wire unused = &{1'b0, a_link, b_link, last_link, shift};
endmodule

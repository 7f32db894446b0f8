// Output-stationary systolic array: c (ROWS x COLS) = a (ROWS x K) times b (K x COLS), K given at run time.
//
// In each cycle in which `feed` is high, the column k of a and the row k of b are taken from the ports. Operands move
// one column to the right and one row down per cycle, so the product k of row r and column c is added in cycle
// r + c + k. Multipliers are shared by blocks of PACK_ROWS x PACK_COLS products (see block.v); a block takes both
// operands when its first row and column are due and adds its products, from registers behind the multiplier, when its
// last row and column are due.
//
// OVERLAP = 0: when the last product of the fold is in, the accumulators of a column become a shift register and leave
// at the bottom, last row first, ROWS cycles long. A fold takes K + (ROWS + COLS - 2) + ROWS cycles.
// OVERLAP = 1: each sum moves to a second register as soon as it is complete and leaves from there, column c delayed by
// c cycles, while the next fold is computed: max(K, ROWS) cycles from fold to fold.
module systolic_array #(
    parameter ROWS = 4,
    parameter COLS = 4,
    parameter WIDTH = 8,
    parameter ACC_WIDTH = 32,
    parameter PACK_ROWS = 1,
    parameter PACK_COLS = 2,
    parameter COUNT_WIDTH = 16,
    parameter OVERLAP = 0
) (
    input clk,
    input rst,  // hold for 2 * ROWS + COLS cycles: the delays have no reset and are flushed
    input start,
    input [COUNT_WIDTH-1:0] k_count,
    input [COUNT_WIDTH-1:0] fold_count,
    input [ROWS*WIDTH-1:0] a,
    input [COLS*WIDTH-1:0] b,
    output feed,
    output [COLS-1:0] result_valid,
    output [COLS*ACC_WIDTH-1:0] result
);
  localparam BLOCK_ROWS = (ROWS + PACK_ROWS - 1) / PACK_ROWS;
  localparam BLOCK_COLS = (COLS + PACK_COLS - 1) / PACK_COLS;
  localparam A_WIDTH = PACK_ROWS == 2 ? 2 * WIDTH + 1 : WIDTH;
  localparam B_WIDTH = PACK_COLS == 2 ? 2 * WIDTH + 1 : WIDTH;

  wire last, drain;
  systolic_control #(
      .ROWS(ROWS), .COLS(COLS), .COUNT_WIDTH(COUNT_WIDTH), .OVERLAP(OVERLAP)
  ) control (
      .clk(clk), .rst(rst), .start(start), .k_count(k_count), .fold_count(fold_count),
      .feed(feed), .last(last), .drain(drain), .shift(drain_rows)
  );

  // Links between neighbours: a_link[i][j] enters block (i, j) from the left, with its `last` mark; b_link from above.
  wire [BLOCK_ROWS*(BLOCK_COLS+1)*A_WIDTH-1:0] a_link;
  wire [BLOCK_ROWS*(BLOCK_COLS+1)-1:0] last_link;
  wire [(BLOCK_ROWS+1)*BLOCK_COLS*B_WIDTH-1:0] b_link;
  wire [(ROWS+1)*COLS*ACC_WIDTH-1:0] sums;  // row r of it stands above row r of the array
  wire [ROWS-1:0] drain_rows;
  wire [COLS*ROWS-1:0] shift;  // bit ROWS*c + r: row r of column c takes the sum above it

  assign sums[COLS*ACC_WIDTH-1:0] = 0;
  assign result = sums[ROWS*COLS*ACC_WIDTH+:COLS*ACC_WIDTH];

  genvar i, j, h;
  generate
    for (i = 0; i < BLOCK_ROWS; i = i + 1) begin : left
      localparam HEIGHT = ROWS - i * PACK_ROWS < PACK_ROWS ? 1 : PACK_ROWS;
      wire [A_WIDTH-1:0] packed_a;
      systolic_pack #(.COUNT(HEIGHT), .WIDTH(WIDTH), .OUT_WIDTH(A_WIDTH)) pack (
          .in(a[i*PACK_ROWS*WIDTH+:HEIGHT*WIDTH]), .enable(feed), .out(packed_a)
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
      systolic_pack #(.COUNT(SPAN), .WIDTH(WIDTH), .OUT_WIDTH(B_WIDTH)) pack (
          .in(b[j*PACK_COLS*WIDTH+:SPAN*WIDTH]), .enable(1'b1), .out(packed_b)
      );
      systolic_delay #(.WIDTH(B_WIDTH), .DEPTH(j * PACK_COLS)) skew (
          .clk(clk), .in(packed_b), .out(b_link[j*B_WIDTH+:B_WIDTH])
      );
    end
    for (j = 0; j < COLS; j = j + 1) begin : bottom
      // Without overlap all columns leave together, with it those of a block when the last of them is complete.
      localparam BLOCK_END = j / PACK_COLS * PACK_COLS + PACK_COLS - 1;
      localparam DUE = BLOCK_END < COLS ? BLOCK_END : COLS - 1;
      systolic_delay #(.WIDTH(ROWS + 1), .DEPTH(OVERLAP ? DUE : 0)) skew_shift (
          .clk(clk), .in({drain, drain_rows}), .out({result_valid[j], shift[j*ROWS+:ROWS]})
      );
    end
    for (i = 0; i < BLOCK_ROWS; i = i + 1) begin : row
      for (j = 0; j < BLOCK_COLS; j = j + 1) begin : col
        localparam HEIGHT = ROWS - i * PACK_ROWS < PACK_ROWS ? 1 : PACK_ROWS;
        localparam SPAN = COLS - j * PACK_COLS < PACK_COLS ? 1 : PACK_COLS;
        wire [HEIGHT*SPAN*ACC_WIDTH-1:0] block_sums;
        wire [HEIGHT-1:0] block_shift = shift[j*PACK_COLS*ROWS+i*PACK_ROWS+:HEIGHT];
        systolic_block #(
            .HEIGHT(HEIGHT), .SPAN(SPAN), .WIDTH(WIDTH), .ACC_WIDTH(ACC_WIDTH), .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH),
            .OVERLAP(OVERLAP)
        ) block (
            .clk(clk), .rst(rst), .shift(block_shift),
            .a(a_link[(i*(BLOCK_COLS+1)+j)*A_WIDTH+:A_WIDTH]),
            .last(last_link[i*(BLOCK_COLS+1)+j]),
            .b(b_link[(i*BLOCK_COLS+j)*B_WIDTH+:B_WIDTH]),
            .above(sums[(i*PACK_ROWS*COLS+j*PACK_COLS)*ACC_WIDTH+:SPAN*ACC_WIDTH]),
            .a_next(a_link[(i*(BLOCK_COLS+1)+j+1)*A_WIDTH+:A_WIDTH]),
            .last_next(last_link[i*(BLOCK_COLS+1)+j+1]),
            .b_next(b_link[((i+1)*BLOCK_COLS+j)*B_WIDTH+:B_WIDTH]),
            .sums(block_sums)
        );
        for (h = 0; h < HEIGHT; h = h + 1) begin : out
          assign sums[((i*PACK_ROWS+h+1)*COLS+j*PACK_COLS)*ACC_WIDTH+:SPAN*ACC_WIDTH] =
              block_sums[h*SPAN*ACC_WIDTH+:SPAN*ACC_WIDTH];
        end
      end
    end
  endgenerate
endmodule

// SIMD times HEIGHT x SPAN products, each by one multiplier of 27 x 18 bits, their sums and their accumulators.
//
// With SPAN = 2 the second factor is b0 + b1 * 2^F, F bits being the width of one product; with HEIGHT = 2 the first
// one is a0 + a1 * 2^(SPAN*F). So the product holds a0*b0, a0*b1, a1*b0, a1*b1 in fields of F bits. A field reads one
// too small where the part below it is negative: its accumulator adds the sign bit below as its carry.
//
// PIPELINED = 1: a register behind the product and one behind each level of the tree. PIPELINED = 2: another one behind the
// product, and one before it, for devices whose multipliers are far from the logic.
module systolic_block #(
    parameter HEIGHT = 1,
    parameter SPAN = 2,
    parameter WIDTH = 8,
    parameter ACC_WIDTH = 32,
    parameter A_WIDTH = 8,
    parameter B_WIDTH = 17,
    parameter OVERLAP = 0,
    parameter SIMD = 1,
    parameter PIPELINED = 0,
    parameter RIGHT = 1,  // whether there is a block to the right, and one below
    parameter DOWN = 1
) (
    input clk,
    input rst,
    input [HEIGHT-1:0] shift,
    input [A_WIDTH-1:0] a,
    input last,
    input [B_WIDTH-1:0] b,
    input [HEIGHT*SPAN*ACC_WIDTH-1:0] above,
    output [A_WIDTH-1:0] a_next,
    output last_next,
    output [B_WIDTH-1:0] b_next,
    output [HEIGHT*SPAN*ACC_WIDTH-1:0] sums
);
  localparam FIELD = 2 * WIDTH;
  localparam A_BITS = HEIGHT == 2 ? SPAN * FIELD + WIDTH + 1 : WIDTH;
  localparam B_BITS = SPAN == 2 ? FIELD + WIDTH + 1 : WIDTH;
  localparam PRODUCT_BITS = HEIGHT * SPAN * FIELD;
  localparam REGISTERS = HEIGHT + SPAN - 2;
  localparam SUM_BITS = FIELD + $clog2(SIMD);
  localparam BEFORE = PIPELINED == 2 ? 1 : 0;
  localparam BEHIND = REGISTERS + PIPELINED;
  localparam ADDED = BEFORE + BEHIND + (PIPELINED != 0 ? $clog2(SIMD) : 0);

  generate
    if (RIGHT) begin : to_the_right
      systolic_delay #(.WIDTH(A_WIDTH), .DEPTH(SPAN)) right (.clk(clk), .in(a), .out(a_next));
      systolic_delay #(.WIDTH(1), .DEPTH(SPAN)) right_last (.clk(clk), .in(last), .out(last_next));
    end else begin : rightmost
      assign a_next = 0;
      assign last_next = 0;
    end
    if (DOWN) begin : further_down
      systolic_delay #(.WIDTH(B_WIDTH), .DEPTH(HEIGHT)) down (.clk(clk), .in(b), .out(b_next));
    end else begin : lowest_block
      assign b_next = 0;
    end
  endgenerate

  wire [A_WIDTH-1:0] a_there;
  wire [B_WIDTH-1:0] b_there;
  systolic_delay #(.WIDTH(A_WIDTH), .DEPTH(BEFORE)) before_a (.clk(clk), .in(a), .out(a_there));
  systolic_delay #(.WIDTH(B_WIDTH), .DEPTH(BEFORE)) before_b (.clk(clk), .in(b), .out(b_there));
  wire [SIMD*PRODUCT_BITS-1:0] products;
  wire is_last;
  systolic_delay #(.WIDTH(1), .DEPTH(ADDED)) behind_last (.clk(clk), .in(last), .out(is_last));

  genvar h, s, i;
  generate
    for (i = 0; i < SIMD; i = i + 1) begin : multiplier
      wire [A_WIDTH/SIMD-1:0] a_word = a_there[i*A_WIDTH/SIMD+:A_WIDTH/SIMD];
      wire [B_WIDTH/SIMD-1:0] b_word = b_there[i*B_WIDTH/SIMD+:B_WIDTH/SIMD];
      wire signed [A_BITS-1:0] a_factor;
      wire signed [B_BITS-1:0] b_factor;
      wire signed [A_BITS+B_BITS-1:0] full = a_factor * b_factor;
      wire unused = &{1'b0, full};
      systolic_delay #(.WIDTH(PRODUCT_BITS), .DEPTH(BEHIND)) behind (
          .clk(clk), .in(full[PRODUCT_BITS-1:0]), .out(products[i*PRODUCT_BITS+:PRODUCT_BITS])
      );
      if (HEIGHT == 2) begin : a_two
        assign a_factor = {a_word[2*WIDTH:WIDTH], {SPAN * FIELD - WIDTH{a_word[WIDTH-1]}}, a_word[WIDTH-1:0]};
      end else begin : a_one
        assign a_factor = a_word[WIDTH-1:0];
      end
      if (SPAN == 2) begin : b_two
        assign b_factor = {b_word[2*WIDTH:WIDTH], {FIELD - WIDTH{b_word[WIDTH-1]}}, b_word[WIDTH-1:0]};
      end else begin : b_one
        assign b_factor = b_word[WIDTH-1:0];
      end
    end
    for (h = 0; h < HEIGHT; h = h + 1) begin : row
      for (s = 0; s < SPAN; s = s + 1) begin : col
        localparam INDEX = h * SPAN + s;
        wire [SIMD*FIELD-1:0] fields;
        wire [SIMD-1:0] carries;
        for (i = 0; i < SIMD; i = i + 1) begin : field
          assign fields[i*FIELD+:FIELD] = products[i*PRODUCT_BITS+INDEX*FIELD+:FIELD];
          if (INDEX == 0) begin : lowest
            assign carries[i] = 1'b0;
          end else begin : higher
            assign carries[i] = products[i*PRODUCT_BITS+INDEX*FIELD-1];
          end
        end
        wire [SUM_BITS-1:0] sum;
        wire carry;
        systolic_tree #(.COUNT(SIMD), .FIELD(FIELD), .SUM_BITS(SUM_BITS), .PIPELINED(PIPELINED)) tree (
            .clk(clk), .fields(fields), .carries(carries), .sum(sum), .carry(carry)
        );
        systolic_accumulator #(.FIELD(SUM_BITS), .WIDTH(ACC_WIDTH), .OVERLAP(OVERLAP)) accumulator (
            .clk(clk), .rst(rst), .product(sum), .carry(carry), .last(is_last),
            .shift(shift[h]), .above(above[INDEX*ACC_WIDTH+:ACC_WIDTH]), .sum(sums[INDEX*ACC_WIDTH+:ACC_WIDTH])
        );
      end
    end
  endgenerate
endmodule

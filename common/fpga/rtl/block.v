// HEIGHT x SPAN products by one multiplier of 27 x 18 bits, and their accumulators.
//
// With SPAN = 2 the second factor is b0 + b1 * 2^F, F bits being the width of one product; with HEIGHT = 2 the first
// one is a0 + a1 * 2^(SPAN*F). So the product holds a0*b0, a0*b1, a1*b0, a1*b1 in fields of F bits. A field reads one
// too small where what lies below it is negative: its accumulator adds the sign bit below as its carry.
module systolic_block #(
    parameter HEIGHT = 1,
    parameter SPAN = 2,
    parameter WIDTH = 8,
    parameter ACC_WIDTH = 32,
    parameter A_WIDTH = 8,
    parameter B_WIDTH = 17,
    parameter OVERLAP = 0
) (
    input clk,
    input rst,
    input [HEIGHT-1:0] shift,
    input [A_WIDTH-1:0] a,
    input last,
    input [B_WIDTH-1:0] b,
    input [SPAN*ACC_WIDTH-1:0] above,
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

  systolic_delay #(.WIDTH(A_WIDTH), .DEPTH(SPAN)) right (.clk(clk), .in(a), .out(a_next));
  systolic_delay #(.WIDTH(1), .DEPTH(SPAN)) right_last (.clk(clk), .in(last), .out(last_next));
  systolic_delay #(.WIDTH(B_WIDTH), .DEPTH(HEIGHT)) down (.clk(clk), .in(b), .out(b_next));

  wire signed [A_BITS-1:0] a_factor;
  wire signed [B_BITS-1:0] b_factor;
  wire signed [A_BITS+B_BITS-1:0] full = a_factor * b_factor;
  wire [PRODUCT_BITS-1:0] product;
  wire is_last;
  systolic_delay #(.WIDTH(PRODUCT_BITS), .DEPTH(REGISTERS)) behind (
      .clk(clk), .in(full[PRODUCT_BITS-1:0]), .out(product)
  );
  systolic_delay #(.WIDTH(1), .DEPTH(REGISTERS)) behind_last (.clk(clk), .in(last), .out(is_last));

  genvar h, s;
  generate
    if (HEIGHT == 2) begin : a_two
      assign a_factor = {a[2*WIDTH:WIDTH], {SPAN * FIELD - WIDTH{a[WIDTH-1]}}, a[WIDTH-1:0]};
    end else begin : a_one
      assign a_factor = a[WIDTH-1:0];
    end
    if (SPAN == 2) begin : b_two
      assign b_factor = {b[2*WIDTH:WIDTH], {FIELD - WIDTH{b[WIDTH-1]}}, b[WIDTH-1:0]};
    end else begin : b_one
      assign b_factor = b[WIDTH-1:0];
    end
    for (h = 0; h < HEIGHT; h = h + 1) begin : row
      for (s = 0; s < SPAN; s = s + 1) begin : col
        localparam INDEX = h * SPAN + s;
        wire carry;
        wire [ACC_WIDTH-1:0] from;
        if (INDEX == 0) begin : lowest
          assign carry = 1'b0;
        end else begin : higher
          assign carry = product[INDEX*FIELD-1];
        end
        if (h == 0) begin : first
          assign from = above[s*ACC_WIDTH+:ACC_WIDTH];
        end else begin : second
          assign from = sums[((h-1)*SPAN+s)*ACC_WIDTH+:ACC_WIDTH];
        end
        systolic_accumulator #(.FIELD(FIELD), .WIDTH(ACC_WIDTH), .OVERLAP(OVERLAP)) accumulator (
            .clk(clk), .rst(rst), .product(product[INDEX*FIELD+:FIELD]), .carry(carry), .last(is_last),
            .shift(shift[h]), .above(from), .sum(sums[INDEX*ACC_WIDTH+:ACC_WIDTH])
        );
      end
    end
  endgenerate
endmodule

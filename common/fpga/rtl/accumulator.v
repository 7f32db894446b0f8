// One sum, and its way out. Where shift is high it takes the sum above it; the products of a fold that is over are zero.
module systolic_accumulator #(
    parameter FIELD = 16,
    parameter WIDTH = 32,
    parameter OVERLAP = 0
) (
    input clk,
    input rst,
    input [FIELD-1:0] product,
    input carry,
    input last,
    input shift,
    input [WIDTH-1:0] above,
    output [WIDTH-1:0] sum
);
  wire [WIDTH-1:0] addend = {{WIDTH - FIELD{product[FIELD-1]}}, product};
  reg [WIDTH-1:0] total;
  wire [WIDTH-1:0] base;
  // addend + base + carry, one bit further up. Written as a difference it keeps the choice in `base` and the addition
  // in one LUT per bit: of a sum, the narrower operand becomes the one that the carry chain needs by itself.
  wire [WIDTH:0] wide = {addend, carry} - {~base, 1'b1};
  wire [WIDTH-1:0] next = wide[WIDTH:1];

  generate
    if (OVERLAP) begin : overlapped
      reg [WIDTH-1:0] leaving;
      assign base = total;
      assign sum = leaving;
      always @(posedge clk) begin
        if (rst || last) total <= 0;
        else total <= next;
        if (last) leaving <= next;
        else if (shift) leaving <= above;
      end
    end else begin : simple
      assign base = shift ? above : total;
      assign sum = total;
      always @(posedge clk) begin
        if (rst) total <= 0;
        else total <= next;
      end
    end
  endgenerate
  wire unused = &{1'b0, wide[0], last};
endmodule

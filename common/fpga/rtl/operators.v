// The operators of a lane that computes in integers, each with an operand in every cycle: their cells are the figures
// of integer_operators in configs/dataflow.yaml.

module add (input clock, input signed [31:0] a, b, output reg signed [31:0] y);
  always @(posedge clock) y <= a + b;
endmodule

module compare (input clock, input signed [31:0] a, b, output reg signed [31:0] y);
  always @(posedge clock) y <= a > b ? a : b;
endmodule

// 27 by 18 bits, the largest product of one DSP; the upper bits of the product.
module multiply (input clock, input signed [26:0] a, input signed [17:0] b, output reg signed [31:0] y);
  reg signed [26:0] left;
  reg signed [17:0] right;
  reg signed [44:0] product, registered;
  always @(posedge clock) begin
    left <= a;
    right <= b;
    product <= left * right;
    registered <= product;
    y <= registered[44:13];
  end
endmodule

// Shift, round and clip to 8 bits.
module convert (input clock, input signed [31:0] a, input [4:0] shift, output reg signed [7:0] y);
  reg signed [31:0] shifted, rounded;
  always @(posedge clock) begin
    shifted <= a >>> shift;
    rounded <= shifted + 1;
    y <= rounded > 127 ? 8'sd127 : rounded < -128 ? -8'sd128 : rounded[7:0];
  end
endmodule

// Any function of one value: a table that is written before the call.
module exponential (input clock, input write, input [7:0] address, input [15:0] data, input [7:0] a,
                    output reg [15:0] y);
  (* ram_style = "distributed" *) reg [15:0] content [0:255];
  always @(posedge clock) begin
    if (write) content[address] <= data;
    y <= content[a];
  end
endmodule

// Reciprocal or root: leading zeros, a table of the leading bits, one product, the shift back.
module reciprocal_root (input clock, input write, input [7:0] address, input [15:0] data, input [31:0] a,
                        output reg [31:0] y);
  reg [15:0] content [0:255];
  reg [31:0] value, normal, product;
  reg [15:0] entry, rest;
  reg [4:0] zeros, zeros_1, zeros_2, zeros_3;
  integer bit_index;
  always @(*) begin
    zeros = 0;
    for (bit_index = 0; bit_index < 32; bit_index = bit_index + 1) if (value[bit_index]) zeros = 31 - bit_index;
  end
  always @(posedge clock) begin
    if (write) content[address] <= data;
    value <= a;
    normal <= value << zeros;
    zeros_1 <= zeros;
    entry <= content[normal[30:23]];
    rest <= normal[22:7];
    zeros_2 <= zeros_1;
    product <= entry * rest;
    zeros_3 <= zeros_2;
    y <= product >> (31 - zeros_3);
  end
endmodule

// 32 by 16 bits, one bit of the quotient in each stage.
module divide (input clock, input [31:0] a, input [15:0] b, output [31:0] y);
  wire [31:0] quotient [0:32], dividend [0:32];
  wire [16:0] remainder [0:32];
  wire [15:0] divisor [0:32];
  assign quotient[0] = 0, remainder[0] = 0, dividend[0] = a, divisor[0] = b, y = quotient[32];
  genvar i;
  generate
    for (i = 0; i < 32; i = i + 1) begin : stage
      reg [31:0] next_quotient, next_dividend;
      reg [16:0] next_remainder;
      reg [15:0] next_divisor;
      wire [16:0] shifted = {remainder[i][15:0], dividend[i][31]};
      wire [17:0] difference = {1'b0, shifted} - {2'b0, divisor[i]};
      always @(posedge clock) begin
        next_remainder <= difference[17] ? shifted : difference[16:0];
        next_quotient <= {quotient[i][30:0], ~difference[17]};
        next_dividend <= dividend[i] << 1;
        next_divisor <= divisor[i];
      end
      assign remainder[i + 1] = next_remainder, quotient[i + 1] = next_quotient;
      assign dividend[i + 1] = next_dividend, divisor[i + 1] = next_divisor;
    end
  endgenerate
endmodule

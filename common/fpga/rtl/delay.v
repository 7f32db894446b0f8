// DEPTH registers in a row, without reset: three or more of them become shift-register LUTs.
module systolic_delay #(
    parameter WIDTH = 8,
    parameter DEPTH = 1
) (
    input clk,
    input [WIDTH-1:0] in,
    output [WIDTH-1:0] out
);
  generate
    if (DEPTH == 0) begin : none
      assign out = in;
    end else if (DEPTH == 1) begin : one
      reg [WIDTH-1:0] stage;
      always @(posedge clk) stage <= in;
      assign out = stage;
    end else begin : many
      reg [DEPTH*WIDTH-1:0] stages;
      always @(posedge clk) stages <= {stages[(DEPTH-1)*WIDTH-1:0], in};
      assign out = stages[DEPTH*WIDTH-1:(DEPTH-1)*WIDTH];
    end
  endgenerate
  wire unused = &{1'b0, clk};
endmodule

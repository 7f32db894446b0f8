// One or two signed operands as one word {upper, lower}: with two, upper is one bit wider and already lacks the 1 that
// a negative lower borrows from it, so that block.v only has to repeat the sign between them.
module systolic_pack #(
    parameter COUNT = 2,
    parameter WIDTH = 8,
    parameter OUT_WIDTH = 17
) (
    input [COUNT*WIDTH-1:0] in,
    input enable,
    output [OUT_WIDTH-1:0] out
);
  wire [COUNT*WIDTH-1:0] taken = enable ? in : {COUNT * WIDTH{1'b0}};
  generate
    if (COUNT == 2) begin : two
      wire [WIDTH-1:0] lower = taken[WIDTH-1:0];
      wire [WIDTH-1:0] upper = taken[2*WIDTH-1:WIDTH];
      assign out = {{upper[WIDTH-1], upper} - {{WIDTH{1'b0}}, lower[WIDTH-1]}, lower};
    end else begin : one
      assign out = {{OUT_WIDTH - WIDTH{1'b0}}, taken};
    end
  endgenerate
endmodule

// SIMD times one or two signed operands as one word {upper, lower}: with two, upper is one bit wider and already lacks
// the 1 that a negative lower borrows from it, so that block.v only has to repeat the sign between them.
module systolic_pack #(
    parameter COUNT = 2,
    parameter SIMD = 1,
    parameter WIDTH = 8,
    parameter OUT_WIDTH = 17
) (
    input [COUNT*SIMD*WIDTH-1:0] in,
    input enable,
    output [SIMD*OUT_WIDTH-1:0] out
);
  wire [COUNT*SIMD*WIDTH-1:0] taken = enable ? in : {COUNT * SIMD * WIDTH{1'b0}};
  genvar i;
  generate
    for (i = 0; i < SIMD; i = i + 1) begin : product
      wire [WIDTH-1:0] lower = taken[i*WIDTH+:WIDTH];
      if (COUNT == 2) begin : two
        wire [WIDTH-1:0] upper = taken[(SIMD+i)*WIDTH+:WIDTH];
        assign out[i*OUT_WIDTH+:OUT_WIDTH] = {{upper[WIDTH-1], upper} - {{WIDTH{1'b0}}, lower[WIDTH-1]}, lower};
      end else begin : one
        assign out[i*OUT_WIDTH+:OUT_WIDTH] = {{OUT_WIDTH - WIDTH{1'b0}}, lower};
      end
    end
  endgenerate
endmodule

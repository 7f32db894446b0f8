// The sum of COUNT signed fields as a tree. Each field has a carry; each addition takes one, and the one that is left
// over goes on to the next addition, which is the accumulator's. PIPELINED: a register behind each level.
module systolic_tree #(
    parameter COUNT = 4,
    parameter FIELD = 16,
    parameter SUM_BITS = 18,
    parameter PIPELINED = 0
) (
    input clk,
    input [COUNT*FIELD-1:0] fields,
    input [COUNT-1:0] carries,
    output [SUM_BITS-1:0] sum,
    output carry
);
  localparam LEVELS = $clog2(COUNT);
  localparam LEAVES = 1 << LEVELS;
  // Node 1 is the root, nodes 2n and 2n + 1 are below node n, and node LEAVES + i is field i.
  // Split, because the bits of each depend on others of it, which looks like a loop.
  wire [2*LEAVES*SUM_BITS-1:0] nodes  /* verilator split_var */;
  wire [2*LEAVES-1:0] left  /* verilator split_var */;
  assign sum = nodes[SUM_BITS+:SUM_BITS];
  assign carry = left[1];
  assign nodes[SUM_BITS-1:0] = 0;  // there is no node 0
  assign left[0] = 1'b0;

  genvar n, i;
  generate
    for (i = 0; i < LEAVES; i = i + 1) begin : leaf
      if (i < COUNT) begin : there
        assign nodes[(LEAVES+i)*SUM_BITS+:SUM_BITS] = {{LEVELS + 1{fields[i*FIELD+FIELD-1]}}, fields[i*FIELD+:FIELD-1]};
        assign left[LEAVES+i] = carries[i];
      end else begin : missing
        assign nodes[(LEAVES+i)*SUM_BITS+:SUM_BITS] = 0;
        assign left[LEAVES+i] = 1'b0;
      end
    end
    for (n = 1; n < LEAVES; n = n + 1) begin : node
      localparam BITS = FIELD + LEVELS - $clog2(n + 1) + 1;  // one more than the nodes below
      wire signed [BITS-2:0] one = nodes[2*n*SUM_BITS+:BITS-1];
      wire signed [BITS-2:0] other = nodes[(2*n+1)*SUM_BITS+:BITS-1];
      // one + other + carry, one bit further up, as in accumulator.v.
      wire [BITS:0] wide = {one[BITS-2], one, left[2*n+1]} + {other[BITS-2], other, 1'b1};
      systolic_delay #(.WIDTH(SUM_BITS + 1), .DEPTH(PIPELINED != 0 ? 1 : 0)) behind (
          .clk(clk), .in({left[2*n], {SUM_BITS - BITS + 1{wide[BITS]}}, wide[BITS-1:1]}),
          .out({left[n], nodes[n*SUM_BITS+:SUM_BITS]})
      );
    end
  endgenerate
  wire unused = &{1'b0, clk, nodes, left};
endmodule

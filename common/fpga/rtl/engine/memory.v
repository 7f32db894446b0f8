// Memory with one write port and one read port, whose word is read one cycle after its address: block RAM.
module engine_memory #(
    parameter WIDTH = 64,
    parameter DEPTH = 512,
    parameter ADDRESS = DEPTH > 1 ? $clog2(DEPTH) : 1
) (
    input clk,
    input write,
    input [ADDRESS-1:0] write_address,
    input [WIDTH-1:0] write_word,
    input [ADDRESS-1:0] read_address,
    output reg [WIDTH-1:0] read_word
);
  reg [WIDTH-1:0] content[0:DEPTH-1];
  always @(posedge clk) begin
    if (write) content[write_address] <= write_word;
    read_word <= content[read_address];
  end
endmodule

// PARTS memories side by side: a write fills one part, a read takes the parts of one address together.
module engine_wide_memory #(
    parameter PART = 64,
    parameter PARTS = 1,
    parameter DEPTH = 512,
    parameter ADDRESS = DEPTH > 1 ? $clog2(DEPTH) : 1
) (
    input clk,
    input [PARTS-1:0] write,
    input [ADDRESS-1:0] write_address,
    input [PARTS*PART-1:0] write_word,
    input [ADDRESS-1:0] read_address,
    output [PARTS*PART-1:0] read_word
);
  genvar i;
  generate
    for (i = 0; i < PARTS; i = i + 1) begin : part
      engine_memory #(.WIDTH(PART), .DEPTH(DEPTH)) memory (
          .clk(clk), .write(write[i]), .write_address(write_address), .write_word(write_word[i*PART+:PART]),
          .read_address(read_address), .read_word(read_word[i*PART+:PART])
      );
    end
  endgenerate
endmodule

// First in, first out, with the oldest word always at the output; a few words deep, in LUT RAM.
module engine_fifo #(
    parameter WIDTH = 8,
    parameter LOG_DEPTH = 3
) (
    input clk,
    input rst,
    input push,
    input [WIDTH-1:0] in,
    input pop,
    output [WIDTH-1:0] out,
    output empty,
    output full
);
  localparam DEPTH = 1 << LOG_DEPTH;
  reg [WIDTH-1:0] content[0:DEPTH-1];
  reg [LOG_DEPTH:0] written, taken;
  assign out = content[taken[LOG_DEPTH-1:0]];
  assign empty = written == taken;
  assign full = written[LOG_DEPTH-1:0] == taken[LOG_DEPTH-1:0] && written[LOG_DEPTH] != taken[LOG_DEPTH];
  always @(posedge clk) begin
    if (push) content[written[LOG_DEPTH-1:0]] <= in;
    if (rst) begin
      written <= 0;
      taken <= 0;
    end else begin
      if (push) written <= written + 1'b1;
      if (pop) taken <= taken + 1'b1;
    end
  end
endmodule

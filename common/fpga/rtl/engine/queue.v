// Descriptors of one unit: a ring of 32-bit words that the host fills, and the oldest descriptor as a whole. The next
// descriptor is gathered while the unit works, from the moment at which it has taken the one before.
module engine_queue #(
    parameter WORDS = 6,
    parameter DEPTH = 512
) (
    input clk,
    input rst,
    input push,
    input [31:0] word,
    output full,
    output valid,
    output reg [WORDS*32-1:0] descriptor,
    input take
);
  localparam BITS = $clog2(DEPTH);
  localparam COUNT = $clog2(WORDS + 1);
  reg [BITS:0] written, read;
  reg [COUNT-1:0] asked, held;
  reg coming;
  wire [31:0] fetched;
  wire ask = written != read && asked != WORDS[COUNT-1:0] && !take;
  assign full = written[BITS-1:0] == read[BITS-1:0] && written[BITS] != read[BITS];
  assign valid = held == WORDS[COUNT-1:0];
  engine_memory #(.WIDTH(32), .DEPTH(DEPTH)) ring (
      .clk(clk), .write(push), .write_address(written[BITS-1:0]), .write_word(word),
      .read_address(read[BITS-1:0]), .read_word(fetched)
  );
  always @(posedge clk) begin
    if (coming) descriptor <= {fetched, descriptor[WORDS*32-1:32]};
    if (rst) begin
      written <= 0;
      read <= 0;
      asked <= 0;
      held <= 0;
      coming <= 0;
    end else begin
      if (push) written <= written + 1'b1;
      if (ask) read <= read + 1'b1;
      coming <= ask;
      if (take) begin
        asked <= 0;
        held <= 0;
      end else begin
        if (ask) asked <= asked + 1'b1;
        if (coming) held <= held + 1'b1;
      end
    end
  end
endmodule

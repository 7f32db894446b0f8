// Writes of results to memory: AXI4 bursts from the results' buffer, word by word. A store begins when as many calls of
// the array are over as its descriptor says, and is over when memory has answered its last burst.
module engine_store #(
    parameter WORD = 8,
    parameter BURST = 32,
    parameter LOG_UNDER_WAY = 3
) (
    input clk,
    input rst,
    input valid,
    input [6*32-1:0] descriptor,
    output take,
    input [15:0] computed,
    output reg [15:0] stored,
    output busy,
    // The results' buffer: a word one cycle after its address
    output [15:0] address,
    input [8*WORD-1:0] word,
    // AXI4 write channels
    output awvalid,
    input awready,
    output [31:0] awaddr,
    output [7:0] awlen,
    output wvalid,
    input wready,
    output [8*WORD-1:0] wdata,
    output wlast,
    input bvalid,
    output bready
);
  wire [15:0] since_computed = computed - descriptor[63:48];
  wire active, asked, is_final, under_way_full, lengths_full;
  wire [15:0] at, lane;
  assign take = valid && !active && !since_computed[15];
  engine_bursts #(.WORD(WORD), .BURST(BURST)) bursts (
      .clk(clk), .rst(rst), .take(take), .descriptor(descriptor), .active(active),
      .may_ask(!under_way_full && !lengths_full), .valid(awvalid), .ready(awready), .address(awaddr), .length(awlen),
      .asked(asked), .at(at), .lane(lane), .is_final(is_final)
  );

  // Words of the bursts that were asked for, in their order. Four places hold what the buffer has in its way.
  wire [15:0] burst_at;
  wire [7:0] burst_length;
  wire no_burst, words_empty, words_full;
  reg [7:0] fetched;
  reg [2:0] room;
  reg coming, coming_last;
  wire fetch = !no_burst && room != 0;
  wire ends_fetch = fetch && fetched == burst_length;
  wire sent = wvalid && wready;
  assign address = burst_at + {8'b0, fetched};
  engine_fifo #(.WIDTH(24), .LOG_DEPTH(LOG_UNDER_WAY)) lengths (
      .clk(clk), .rst(rst), .push(asked), .in({at, awlen}), .pop(ends_fetch),
      .out({burst_at, burst_length}), .empty(no_burst), .full(lengths_full)
  );
  engine_fifo #(.WIDTH(8 * WORD + 1), .LOG_DEPTH(2)) words (
      .clk(clk), .rst(rst), .push(coming), .in({coming_last, word}), .pop(sent),
      .out({wlast, wdata}), .empty(words_empty), .full(words_full)
  );
  assign wvalid = !words_empty;
  always @(posedge clk) begin
    coming_last <= ends_fetch;
    if (rst) begin
      fetched <= 0;
      room <= 4;
      coming <= 0;
    end else begin
      coming <= fetch;
      if (fetch) fetched <= ends_fetch ? 8'd0 : fetched + 1'b1;
      room <= room + {2'b0, sent} - {2'b0, fetch};
    end
  end

  wire answered_final, none_under_way;
  assign bready = 1'b1;
  assign busy = active || !none_under_way;
  engine_fifo #(.WIDTH(1), .LOG_DEPTH(LOG_UNDER_WAY)) under_way (
      .clk(clk), .rst(rst), .push(asked), .in(is_final), .pop(bvalid),
      .out(answered_final), .empty(none_under_way), .full(under_way_full)
  );
  always @(posedge clk) begin
    if (rst) stored <= 0;
    else if (bvalid && answered_final) stored <= stored + 1'b1;
  end
  wire unused = &{1'b0, since_computed[14:0], descriptor[47:0], lane, words_full};
endmodule

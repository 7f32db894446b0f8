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
  localparam SHIFT = $clog2(WORD);
  localparam [12:0] PAGE = 13'd4096 >> SHIFT;
  localparam [12:0] LONGEST = BURST;

  wire [15:0] since_computed = computed - descriptor[63:48];
  reg active, asks;
  reg [15:0] left, rows_left, row_words, at;
  reg [31:0] from, row_from, stride;
  reg [12:0] beats;
  wire under_way_full, lengths_full;
  assign take = valid && !active && !since_computed[15];

  wire [12:0] page_left = PAGE - {{SHIFT + 1{1'b0}}, from[11:SHIFT]};
  wire [12:0] allowed = page_left < LONGEST ? page_left : LONGEST;
  wire [12:0] next_beats = left < {3'b0, allowed} ? left[12:0] : allowed;
  wire ends_row = left == {3'b0, beats};
  wire is_final = ends_row && rows_left == 1;
  wire asked = awvalid && awready;
  wire [12:0] beats_less_one = beats - 13'd1;
  assign awvalid = asks && !under_way_full && !lengths_full;
  assign awaddr = from;
  assign awlen = beats_less_one[7:0];

  wire [31:0] next_row = row_from + stride;
  always @(posedge clk) begin
    if (rst) begin
      active <= 0;
      asks <= 0;
    end else if (take) begin
      active <= 1;
      asks <= 0;
    end else if (active) begin
      asks <= !asked;
      if (asked && is_final) active <= 0;
    end
    if (take) begin
      from <= descriptor[95:64];
      row_from <= descriptor[95:64];
      row_words <= descriptor[111:96];
      left <= descriptor[111:96];
      at <= descriptor[127:112];
      rows_left <= descriptor[159:144];
      stride <= descriptor[191:160];
    end else if (asked) begin
      at <= at + {3'b0, beats};
      left <= ends_row ? row_words : left - {3'b0, beats};
      from <= ends_row ? next_row : from + ({19'b0, beats} << SHIFT);
      if (ends_row) begin
        row_from <= next_row;
        rows_left <= rows_left - 1'b1;
      end
    end
    if (active && !asks) beats <= next_beats;
  end

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
  wire unused = &{1'b0, since_computed[14:0], descriptor[47:0], descriptor[143:128], beats_less_one[12:8], words_full};
endmodule

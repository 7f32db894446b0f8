// Reads of memory into the buffers: AXI4 bursts, of which several are under way at the same time. A load begins when as
// many calls of the array and as many stores are over as its descriptor says. What arrives goes to one buffer, word by
// word; a load of several rows leaves the gaps between them out.
module engine_load #(
    parameter WORD = 8,    // bytes of a word
    parameter BURST = 32,  // longest burst in words; at most what 4 KiB hold
    parameter LOG_UNDER_WAY = 3
) (
    input clk,
    input rst,
    input valid,
    input [6*32-1:0] descriptor,
    output take,
    input [15:0] computed,
    input [15:0] stored,
    output reg [15:0] loaded,
    output busy,
    // AXI4 read channels
    output arvalid,
    input arready,
    output [31:0] araddr,
    output [7:0] arlen,
    input rvalid,
    output rready,
    input [8*WORD-1:0] rdata,
    // Words for the buffers
    output reg write,
    output reg [1:0] target,
    output reg [15:0] address,
    output reg [8*WORD-1:0] word
);
  localparam SHIFT = $clog2(WORD);
  localparam [12:0] PAGE = 13'd4096 >> SHIFT;  // words between two borders that no burst may cross
  localparam [12:0] LONGEST = BURST;

  wire [15:0] since_computed = computed - descriptor[63:48];
  wire [15:0] since_stored = stored - descriptor[47:32];
  reg active, asks;
  reg [1:0] to;
  reg [15:0] left, rows_left, row_words, at;
  reg [31:0] from, row_from, stride;
  reg [12:0] beats;
  wire under_way_full;
  assign take = valid && !active && !since_computed[15] && !since_stored[15];

  wire [12:0] page_left = PAGE - {{SHIFT + 1{1'b0}}, from[11:SHIFT]};
  wire [12:0] allowed = page_left < LONGEST ? page_left : LONGEST;
  wire [12:0] next_beats = left < {3'b0, allowed} ? left[12:0] : allowed;
  wire ends_row = left == {3'b0, beats};
  wire is_final = ends_row && rows_left == 1;
  wire asked = arvalid && arready;
  wire [12:0] beats_less_one = beats - 13'd1;
  assign arvalid = asks && !under_way_full;
  assign araddr = from;
  assign arlen = beats_less_one[7:0];

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
      to <= descriptor[3:2];
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

  // Bursts under way, the oldest of which arrives.
  wire [1:0] arriving_to;
  wire [15:0] arriving_at;
  wire [7:0] arriving_length;
  wire arriving_final, none_under_way;
  reg [7:0] arrived;
  wire ends_burst = rvalid && arrived == arriving_length;
  assign rready = 1'b1;
  assign busy = active || !none_under_way;
  engine_fifo #(.WIDTH(27), .LOG_DEPTH(LOG_UNDER_WAY)) under_way (
      .clk(clk), .rst(rst), .push(asked), .in({is_final, to, at, arlen}), .pop(ends_burst),
      .out({arriving_final, arriving_to, arriving_at, arriving_length}), .empty(none_under_way), .full(under_way_full)
  );
  reg ends_load;
  always @(posedge clk) begin
    write <= rvalid && !rst;
    target <= arriving_to;
    address <= arriving_at + {8'b0, arrived};
    word <= rdata;
    ends_load <= ends_burst && arriving_final && !rst;
    if (rst) begin
      arrived <= 0;
      loaded <= 0;
    end else begin
      if (rvalid) arrived <= ends_burst ? 8'd0 : arrived + 1'b1;
      if (ends_load) loaded <= loaded + 1'b1;
    end
  end
  wire unused = &{1'b0, since_computed[14:0], since_stored[14:0], descriptor[31:4], descriptor[1:0], descriptor[143:128],
                  beats_less_one[12:8]};
endmodule

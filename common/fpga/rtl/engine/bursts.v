// The AXI4 bursts of a load or a store: rows of words that lie apart in memory, each in bursts that cross no border of
// 4 KiB. The rows lie side by side in the buffer; with `folds` all begin at the same place, in lanes one after the other.
module engine_bursts #(
    parameter WORD = 8,    // bytes of a word
    parameter BURST = 32   // longest burst in words; at most what 4 KiB hold
) (
    input clk,
    input rst,
    input take,
    input [6*32-1:0] descriptor,
    output reg active,
    input may_ask,
    // AXI4 address channel
    output valid,
    input ready,
    output [31:0] address,
    output [7:0] length,     // less one
    // Of the burst that is asked for
    output asked,
    output reg [15:0] at,    // place in the buffer
    output reg [15:0] lane,
    output is_final
);
  localparam SHIFT = $clog2(WORD);
  localparam [12:0] PAGE = 13'd4096 >> SHIFT;  // words between two borders
  localparam [12:0] LONGEST = BURST;

  reg asks, folds;
  reg [15:0] left, rows_left, row_words, first_at;
  reg [31:0] from, row_from, stride;
  reg [12:0] beats;
  wire [12:0] page_left = PAGE - {{SHIFT + 1{1'b0}}, from[11:SHIFT]};
  wire [12:0] allowed = page_left < LONGEST ? page_left : LONGEST;
  wire [12:0] next_beats = left < {3'b0, allowed} ? left[12:0] : allowed;
  wire [12:0] beats_less_one = beats - 13'd1;
  wire ends_row = left == {3'b0, beats};
  wire [31:0] next_row = row_from + stride;
  assign is_final = ends_row && rows_left == 1;
  assign valid = asks && may_ask;
  assign asked = valid && ready;
  assign address = from;
  assign length = beats_less_one[7:0];

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
      folds <= descriptor[5];
      from <= descriptor[95:64];
      row_from <= descriptor[95:64];
      row_words <= descriptor[111:96];
      left <= descriptor[111:96];
      at <= descriptor[127:112];
      first_at <= descriptor[127:112];
      rows_left <= descriptor[159:144];
      stride <= descriptor[191:160];
      lane <= 0;
    end else if (asked) begin
      at <= ends_row && folds ? first_at : at + {3'b0, beats};
      left <= ends_row ? row_words : left - {3'b0, beats};
      from <= ends_row ? next_row : from + ({19'b0, beats} << SHIFT);
      if (ends_row) begin
        row_from <= next_row;
        rows_left <= rows_left - 1'b1;
        lane <= lane + 1'b1;
      end
    end
    if (active && !asks) beats <= next_beats;
  end
  wire unused = &{1'b0, descriptor[63:6], descriptor[4:0], descriptor[143:128], beats_less_one[12:8]};
endmodule

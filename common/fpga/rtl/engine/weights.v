// Weights of the array, PARTS words of memory for each step, in banks of a byte. The bytes of a word are turned by the
// number of the step, so that a row and a column of WORD x WORD bytes each have one byte in every bank: with `transposes`
// the bytes of a word go to WORD steps, one after the other, of the column `lane`. That needs one product per step.
module engine_weights #(
    parameter WORD = 8,
    parameter PARTS = 1,
    parameter DEPTH = 512,
    parameter ADDRESS = $clog2(DEPTH)
) (
    input clk,
    input write,
    input transposes,
    input [15:0] lane,
    input [15:0] address,  // in words; with `transposes` in WORD steps
    input [8*WORD-1:0] word,
    input [ADDRESS-1:0] step,
    output [PARTS*8*WORD-1:0] words
);
  localparam BITS = WORD > 1 ? $clog2(WORD) : 1;
  localparam SHIFT = $clog2(WORD);
  localparam LAST = WORD - 1;
  wire [BITS-1:0] mask = LAST[BITS-1:0];
  wire [PARTS-1:0] of_address, of_lane;
  engine_part #(.PARTS(PARTS)) by_address (.address(address), .part(of_address));
  engine_part #(.PARTS(PARTS)) by_lane (.address(lane >> SHIFT), .part(of_lane));
  wire [PARTS-1:0] part = transposes ? of_lane : of_address;
  wire [15:0] row = address >> $clog2(PARTS);
  wire [15:0] first = address << SHIFT;
  wire [BITS-1:0] turn = (transposes ? lane[BITS-1:0] : row[BITS-1:0]) & mask;
  reg [BITS-1:0] step_turn;
  always @(posedge clk) step_turn <= step[BITS-1:0] & mask;
  genvar p, i;
  generate
    for (i = 0; i < WORD; i = i + 1) begin : bank
      localparam [BITS-1:0] BANK = i;
      wire [BITS-1:0] from = (BANK - turn) & mask;  // the byte that this bank takes
      wire [7:0] value = word[8*from+:8];
      wire [15:0] to = transposes ? first | {{16 - BITS{1'b0}}, from} : row;
      wire [PARTS*8-1:0] values;
      engine_wide_memory #(.PART(8), .PARTS(PARTS), .DEPTH(DEPTH)) memory (
          .clk(clk), .write(write ? part : {PARTS{1'b0}}), .write_address(to[ADDRESS-1:0]), .write_word({PARTS{value}}),
          .read_address(step), .read_word(values)
      );
      wire unused = &{1'b0, to};
    end
    for (p = 0; p < PARTS; p = p + 1) begin : part_of
      wire [8*WORD-1:0] banks;
      for (i = 0; i < WORD; i = i + 1) begin : byte_of
        localparam [BITS-1:0] BYTE = i;
        wire [BITS-1:0] in_bank = (BYTE + step_turn) & mask;
        assign banks[8*i+:8] = bank[i].values[8*p+:8];
        assign words[(p*WORD+i)*8+:8] = banks[8*in_bank+:8];
      end
    end
  endgenerate
  wire unused = &{1'b0, lane, first, row};
endmodule

// Feeds the array from the operand buffers: for each gathered half all folds along the columns, and for each fold all
// steps of SIMD products. It may leave gaps, because zero operands add nothing. Between the last steps of two folds are
// at least ROWS cycles, in which the sums of the first one leave.
module engine_feed #(
    parameter ROWS = 8,
    parameter WORD = 8,
    parameter SIMD = 1,
    parameter HALF = 9,
    parameter LANE = 3  // bits of the number of a step in a word
) (
    input clk,
    input rst,
    // The next call
    input context_set,
    input [18*32-1:0] descriptor,
    output reg context_full,
    // Halves
    input gathered,
    input [7:0] gathered_rows,
    input gathered_final,
    output reg released,
    // Operand buffers: a word one cycle after its address
    output [HALF:0] a_address,
    output [15:0] b_address,
    output reg [LANE-1:0] lane,  // of the words that are there now
    output reg feed,
    output reg last,
    output [7:0] a_zero,         // what is taken off the operands
    output [7:0] b_zero,
    // A fold that is complete
    output push,
    output [15:0] push_result,   // places of its last row: in the results' buffer, the residual's, the partial sums'
    output [15:0] push_residual,
    output [15:0] push_partial,
    output [15:0] push_channels,
    output [7:0] push_rows,
    output push_final,
    input blocked,               // there is no room for a further fold behind the array
    input full_behind,           // two calls are not over yet, and there is room for what is said about two
    output begins,
    output [18*32-1:0] beginning,
    output waits_for_room,
    output active,
    output steps
);
  localparam [8:0] WHOLE_BITS = WORD / SIMD;
  localparam [7:0] WHOLE = WHOLE_BITS[7:0];
  localparam [15:0] ROW_COUNT = ROWS;

  reg [18*32-1:0] next, now;
  reg running, half;
  reg [1:0] full, final_half;
  reg [15:0] rows_of_half;
  reg fills;
  reg [15:0] folds_left, words_left, group_left, b_at, result, residual, channels, partial;
  reg [7:0] steps_left, gap;
  reg [HALF-1:0] index;
  reg [LANE-1:0] step;

  wire [15:0] kwords = now[351:336];
  wire [15:0] group = now[207:192];
  wire [7:0] tail = now[295:288];
  wire ends_word = steps_left == 1;
  wire ends_fold = ends_word && words_left == 1;
  wire ends_half = ends_fold && folds_left == 1;
  wire is_there = running && full[half];
  assign steps = is_there && !(ends_fold && (gap != 0 || blocked));
  wire ends_call = steps && ends_half && final_half[half];
  assign beginning = next;
  assign begins = context_full && !running && !full_behind;
  assign waits_for_room = is_there && !steps;
  wire ends_group = group_left == 1;
  // The steps of the next word, the last of which in a group of channels may be shorter.
  wire next_is_tail = ends_group ? group == 1 : group_left == 2;
  wire next_fold_is_tail = group == 1;
  assign active = running;

  wire [15:0] last_row = next[431:416];
  wire [15:0] span = now[447:432];
  always @(posedge clk) begin
    if (context_set) next <= descriptor;
    if (rst) begin
      context_full <= 0;
      running <= 0;
      full <= 0;
      half <= 0;
      fills <= 0;
      gap <= 0;
      released <= 0;
    end else begin
      if (context_set) context_full <= 1;
      else if (begins) context_full <= 0;
      if (begins) running <= 1;
      else if (ends_call) running <= 0;
      if (gathered) begin
        full[fills] <= 1;
        fills <= !fills;
      end
      if (steps && ends_half) begin
        full[half] <= 0;
        half <= !half;
      end
      released <= steps && ends_half;
      if (steps && ends_fold) gap <= ROWS - 1;
      else if (gap != 0) gap <= gap - 1'b1;
    end
    if (gathered) begin
      final_half[fills] <= gathered_final;
      rows_of_half[8*fills+:8] <= gathered_rows;
    end
    if (begins) begin
      now <= next;
      folds_left <= next[399:384];
      words_left <= next[351:336];
      group_left <= next[207:192];
      steps_left <= next[207:192] == 1 ? next[295:288] : WHOLE;
      b_at <= next[335:320];
      result <= next[383:368] + last_row;
      residual <= next[415:400] + last_row;
      channels <= next[367:352];
      partial <= ROW_COUNT - 16'd1;
      index <= 0;
      step <= 0;
    end else if (steps) begin
      b_at <= ends_half ? now[335:320] : b_at + 1'b1;
      step <= ends_word ? {LANE{1'b0}} : step + 1'b1;
      if (!ends_word) steps_left <= steps_left - 1'b1;
      else if (ends_fold) steps_left <= next_fold_is_tail ? tail : WHOLE;
      else steps_left <= next_is_tail ? tail : WHOLE;
      if (ends_word) begin
        index <= ends_fold ? {HALF{1'b0}} : index + 1'b1;
        words_left <= ends_fold ? kwords : words_left - 1'b1;
        group_left <= ends_fold || ends_group ? group : group_left - 1'b1;
      end
      if (ends_fold) begin
        folds_left <= ends_half ? now[399:384] : folds_left - 1'b1;
        channels <= ends_half ? now[367:352] : channels + 1'b1;
        partial <= partial + ROW_COUNT;
        result <= result + 16'd1;
        residual <= residual + 16'd1;
        if (ends_half) begin
          // The folds along the columns are behind; the next rows begin after the rows of this half.
          result <= result + 16'd1 + span - now[399:384];
          residual <= residual + 16'd1 + span - now[399:384];
        end
      end
    end
    lane <= step;
    feed <= steps && !rst;
    last <= steps && ends_fold && !rst;
  end
  assign a_address = {half, index};
  assign {b_zero, a_zero} = now[31:16];
  assign b_address = b_at;
  assign push = steps && ends_fold;
  assign push_result = result;
  assign push_residual = residual;
  assign push_partial = partial;
  assign push_channels = channels;
  assign push_rows = rows_of_half[8*half+:8];
  assign push_final = ends_half && final_half[half];
  wire unused = &{1'b0, now[575:448], now[431:400], now[383:368], now[319:296], now[287:208], now[191:32], now[15:0]};
endmodule

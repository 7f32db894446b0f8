// Takes the sums of a fold as they leave the array, the last row first, and lays the columns side by side, which leave
// one cycle after the other; those that share a multiplier leave together. Partial sums of a product that is computed in
// parts wait in a memory of their own.
module engine_collect #(
    parameter ROWS = 8,
    parameter COLS = 8,
    parameter SUM = 32,
    parameter PACK_COLS = 1,
    parameter PARTIAL_DEPTH = 256
) (
    input clk,
    input rst,
    input [COLS-1:0] valid,
    input [COLS*SUM-1:0] sums,
    // The oldest fold that has not left
    input [15:0] result,
    input [15:0] residual,
    input [15:0] partial,
    input [15:0] channels,
    input [7:0] rows,
    input is_final,
    input adds,       // to sums of an earlier part
    input completes,  // there is no later part
    input [15:0] row_step,
    input call,       // which of two calls it belongs to
    output pop,
    // Complete rows of sums, two cycles after they left
    output [15:0] channel_address,  // one cycle before the row
    output reg row_valid,
    output reg row_final,
    output reg [COLS*SUM-1:0] row_sums,
    output reg [15:0] row_result,
    output reg [15:0] row_residual,
    output reg row_call
);
  localparam ADDRESS = $clog2(PARTIAL_DEPTH);
  wire [COLS*SUM-1:0] aligned;
  genvar c;
  generate
    for (c = 0; c < COLS; c = c + 1) begin : column
      localparam LATER = (COLS - 1 - c) / PACK_COLS * PACK_COLS;
      systolic_delay #(.WIDTH(SUM), .DEPTH(LATER)) wait_for_the_last (
          .clk(clk), .in(sums[c*SUM+:SUM]), .out(aligned[c*SUM+:SUM])
      );
    end
  endgenerate
  wire leaves = valid[COLS-1];
  reg [7:0] row;  // that leaves now
  reg [15:0] result_offset, partial_offset;
  assign pop = leaves && row == 0;
  wire [15:0] partial_at = partial - partial_offset;
  assign channel_address = channels;

  reg read, read_final, read_keeps, read_adds, read_completes;
  reg [COLS*SUM-1:0] read_sums;
  reg [15:0] read_result, read_residual, read_partial;
  reg read_call;
  wire [COLS*SUM-1:0] kept, totals;
  generate
    for (c = 0; c < COLS; c = c + 1) begin : add
      assign totals[c*SUM+:SUM] = read_sums[c*SUM+:SUM] + (read_adds ? kept[c*SUM+:SUM] : {SUM{1'b0}});
    end
  endgenerate
  engine_memory #(.WIDTH(COLS * SUM), .DEPTH(PARTIAL_DEPTH)) partials (
      .clk(clk), .write(read && !read_completes), .write_address(read_partial[ADDRESS-1:0]), .write_word(totals),
      .read_address(partial_at[ADDRESS-1:0]), .read_word(kept)
  );
  always @(posedge clk) begin
    if (rst) begin
      row <= ROWS - 1;
      result_offset <= 0;
      partial_offset <= 0;
    end else if (leaves) begin
      row <= row == 0 ? ROWS - 1 : row - 1'b1;
      result_offset <= row == 0 ? 16'd0 : result_offset + row_step;
      partial_offset <= row == 0 ? 16'd0 : partial_offset + 16'd1;
    end
    read <= leaves && !rst;
    read_keeps <= row < rows;
    read_final <= is_final && row == 0;
    read_adds <= adds;
    read_completes <= completes;
    read_sums <= aligned;
    read_result <= result - result_offset;
    read_residual <= residual - result_offset;
    read_partial <= partial_at;
    read_call <= call;

    row_valid <= read && read_completes && read_keeps && !rst;
    row_final <= read && read_final && !rst;
    row_sums <= totals;
    row_result <= read_result;
    row_residual <= read_residual;
    row_call <= read_call;
  end
  wire unused = &{1'b0, valid, read_partial, partial_at};
endmodule

// The schedule: when operands are taken, which of them is a fold's last, and when sums leave column 0.
// drain[g]: the lowest row of segment g is given out. shift[r]: row r takes the sum above it.
module systolic_control #(
    parameter ROWS = 4,
    parameter COLS = 4,
    parameter COUNT_WIDTH = 16,
    parameter OVERLAP = 0,
    parameter DRAIN = ROWS,
    parameter SEGMENTS = 1
) (
    input clk,
    input rst,
    input start,
    input [COUNT_WIDTH-1:0] k_count,
    input [COUNT_WIDTH-1:0] fold_count,
    output feed,
    output last,
    output [SEGMENTS-1:0] drain,
    output [ROWS-1:0] shift
);
  reg [COUNT_WIDTH-1:0] folds_left;
  generate
    if (OVERLAP) begin : overlapped
      reg active;
      reg [COUNT_WIDTH-1:0] k;
      wire fold_ends = k + 1 >= k_count && k >= DRAIN - 1;
      assign feed = active && k < k_count;
      assign last = active && k + 1 == k_count;
      systolic_drain #(.ROWS(ROWS), .DRAIN(DRAIN), .SEGMENTS(SEGMENTS)) out (
          .clk(clk), .rst(rst), .last(last), .drain(drain), .shift(shift)
      );
      always @(posedge clk) begin
        if (rst) active <= 0;
        else if (start && !active) active <= 1;
        else if (active && fold_ends && folds_left == 1) active <= 0;
        if (!active || fold_ends) k <= 0;
        else k <= k + 1;
        if (!active) folds_left <= fold_count;
        else if (fold_ends) folds_left <= folds_left - 1;
      end
    end else begin : simple
      // The phases follow each other as one pulse through delays, whose LUTs hardly depend on their lengths.
      reg busy, feeding, draining;
      reg [COUNT_WIDTH-1:0] count;
      wire fed = feeding && count == 1;
      wire computed, drained;
      systolic_delay #(.WIDTH(1), .DEPTH(ROWS + COLS - 2)) across (.clk(clk), .in(fed), .out(computed));
      systolic_delay #(.WIDTH(1), .DEPTH(ROWS)) down (.clk(clk), .in(computed), .out(drained));
      wire starts = (start && !busy) || (drained && folds_left != 1);
      assign feed = feeding;
      assign last = 1'b0;
      assign drain = draining;
      assign shift = {ROWS{draining}};
      always @(posedge clk) begin
        if (rst) {busy, feeding, draining} <= 0;
        else begin
          if (starts) {busy, feeding} <= 2'b11;
          else begin
            if (drained) busy <= 0;
            if (fed) feeding <= 0;
          end
          if (computed) draining <= 1;
          else if (drained) draining <= 0;
        end
        count <= feeding ? count - 1 : k_count;
        if (!busy) folds_left <= fold_count;
        else if (drained) folds_left <= folds_left - 1;
      end
    end
  endgenerate
endmodule

// When the sums of a fold leave, whose last step is in the first row and column where `last` is high. Between two of
// these are at least DRAIN cycles.
module systolic_drain #(
    parameter ROWS = 4,
    parameter DRAIN = ROWS,
    parameter SEGMENTS = 1
) (
    input clk,
    input rst,
    input last,
    output [SEGMENTS-1:0] drain,
    output [ROWS-1:0] shift
);
  genvar r, g;
  wire [SEGMENTS:0] reached;  // bit g + 1: the lowest row of segment g holds its sum
  assign reached[0] = last;
  generate
    for (g = 0; g < SEGMENTS; g = g + 1) begin : segment
      localparam TOP = g == 0 ? 0 : ROWS - (SEGMENTS - g) * DRAIN;
      localparam LENGTH = ROWS - (SEGMENTS - 1 - g) * DRAIN - TOP;
      reg [7:0] leaving;
      systolic_delay #(.WIDTH(1), .DEPTH(g == 0 ? LENGTH - 1 : LENGTH)) bottom (
          .clk(clk), .in(reached[g]), .out(reached[g+1])
      );
      assign drain[g] = leaving != 0;
      // A row takes over only the sums above it: what it holds after them belongs to the next fold.
      for (r = 0; r < LENGTH; r = r + 1) begin : row
        assign shift[TOP+r] = {24'b0, leaving} > LENGTH - r;
      end
      always @(posedge clk) begin
        if (rst) leaving <= 0;
        else if (reached[g+1]) leaving <= LENGTH[7:0];
        else if (drain[g]) leaving <= leaving - 1;
      end
    end
  endgenerate
endmodule

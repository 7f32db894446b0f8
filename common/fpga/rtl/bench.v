// One array under test: runs products one after the other, feeds the words of two files, writes what leaves and when.
// RUNS_FILE has a word {steps, folds} for each product, A_FILE and B_FILE one for each step of each fold.
module systolic_bench #(
    parameter ROWS = 4,
    parameter COLS = 4,
    parameter WIDTH = 8,
    parameter ACC_WIDTH = 32,
    parameter PACK_ROWS = 1,
    parameter PACK_COLS = 2,
    parameter OVERLAP = 0,
    parameter SIMD = 1,
    parameter DRAIN = ROWS,
    parameter PIPELINED = 0,
    parameter RUNS = 1,
    parameter WORDS = 1,
    parameter RUNS_FILE = "runs.hex",
    parameter A_FILE = "a.hex",
    parameter B_FILE = "b.hex",
    parameter OUT_FILE = "out.txt"
) (
    input clk,
    output reg done
);
  localparam SEGMENTS = (ROWS + DRAIN - 1) / DRAIN;
  reg [31:0] runs[0:RUNS-1];
  reg [ROWS*SIMD*WIDTH-1:0] a_words[0:WORDS-1];
  reg [COLS*SIMD*WIDTH-1:0] b_words[0:WORDS-1];
  reg [31:0] current;
  integer out, index, cycle, first, left, at, j;
  reg start;
  wire feed;
  wire [SEGMENTS*COLS-1:0] valid;
  wire [SEGMENTS*COLS*ACC_WIDTH-1:0] result;

  systolic_array #(
      .ROWS(ROWS), .COLS(COLS), .WIDTH(WIDTH), .ACC_WIDTH(ACC_WIDTH), .PACK_ROWS(PACK_ROWS), .PACK_COLS(PACK_COLS),
      .OVERLAP(OVERLAP), .SIMD(SIMD), .DRAIN(DRAIN), .PIPELINED(PIPELINED)
  ) array (
      .clk(clk), .rst(cycle < 2 * ROWS + COLS), .start(start), .k_count(current[31:16]), .fold_count(current[15:0]),
      .a(feed ? a_words[index] : {ROWS * SIMD * WIDTH{1'b1}}), .b(feed ? b_words[index] : {COLS * SIMD * WIDTH{1'b1}}),
      .feed(feed), .result_valid(valid), .result(result)
  );

  initial begin
    $readmemh(RUNS_FILE, runs);
    $readmemh(A_FILE, a_words);
    $readmemh(B_FILE, b_words);
    out = $fopen(OUT_FILE, "w");
    index = 0;
    cycle = 0;
    left = 0;
    at = 0;
    start = 0;
    done = 0;
  end

  always @(posedge clk) begin
    cycle <= cycle + 1;
    start <= 0;
    if (feed) index <= index + 1;
    if (feed && first < 0) first <= cycle;
    for (j = 0; j < SEGMENTS * COLS; j = j + 1)
      if (valid[j] && !done) begin
        $fwrite(out, "%0d %0d %0d %h\n", at - 1, cycle - first, j, result[j*ACC_WIDTH+:ACC_WIDTH]);
        left = left - 1;
      end
    if (cycle >= 2 * ROWS + COLS && left == 0 && !done) begin
      if (at == RUNS) begin
        $fclose(out);
        done <= 1;
      end else begin
        current <= runs[at];
        left = ROWS * COLS * runs[at][15:0];
        first <= -1;
        start <= 1;
        at <= at + 1;
      end
    end
  end
endmodule

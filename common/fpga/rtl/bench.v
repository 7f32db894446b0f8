// One array under test: feeds the words of two files, writes what leaves and when.
module systolic_bench #(
    parameter ROWS = 4,
    parameter COLS = 4,
    parameter WIDTH = 8,
    parameter ACC_WIDTH = 32,
    parameter PACK_ROWS = 1,
    parameter PACK_COLS = 2,
    parameter OVERLAP = 0,
    parameter K = 1,
    parameter FOLDS = 1,
    parameter A_FILE = "a.hex",
    parameter B_FILE = "b.hex",
    parameter OUT_FILE = "out.txt"
) (
    input clk,
    output reg done
);
  reg [ROWS*WIDTH-1:0] a_words[0:K*FOLDS-1];
  reg [COLS*WIDTH-1:0] b_words[0:K*FOLDS-1];
  integer out, index, cycle, first, left, j;
  wire feed;
  wire [COLS-1:0] valid;
  wire [COLS*ACC_WIDTH-1:0] result;
  wire rst = cycle < 2 * ROWS + COLS;

  systolic_array #(
      .ROWS(ROWS), .COLS(COLS), .WIDTH(WIDTH), .ACC_WIDTH(ACC_WIDTH), .PACK_ROWS(PACK_ROWS), .PACK_COLS(PACK_COLS),
      .OVERLAP(OVERLAP)
  ) array (
      .clk(clk), .rst(rst), .start(cycle == 2 * ROWS + COLS), .k_count(K[15:0]), .fold_count(FOLDS[15:0]),
      .a(feed ? a_words[index] : {ROWS * WIDTH{1'b1}}), .b(feed ? b_words[index] : {COLS * WIDTH{1'b1}}),
      .feed(feed), .result_valid(valid), .result(result)
  );

  initial begin
    $readmemh(A_FILE, a_words);
    $readmemh(B_FILE, b_words);
    out = $fopen(OUT_FILE, "w");
    index = 0;
    cycle = 0;
    first = -1;
    left = ROWS * COLS * FOLDS;
    done = 0;
  end

  always @(posedge clk) begin
    cycle <= cycle + 1;
    if (feed) index <= index + 1;
    if (feed && first < 0) first <= cycle;
    for (j = 0; j < COLS; j = j + 1)
      if (valid[j] && !done) begin
        $fwrite(out, "%0d %0d %h\n", cycle - first, j, result[j*ACC_WIDTH+:ACC_WIDTH]);
        left = left - 1;
      end
    if (left == 0 && !done) begin
      $fclose(out);
      done <= 1;
    end
  end
endmodule

// Gathers the windows of a convolution: for each of ROWS result elements (pixels, one after the other along the lines of
// the result) the words of its window, one word per cycle, from the input buffer into the half of the operand buffer that
// the array does not read. What lies outside of the map is the padding. It also computes maximum pooling: there each
// word of a window is compared with the largest so far, and the last one goes to the results' buffer.
//
// Fields of a descriptor, by 32-bit word: see program.py, which writes them.
module engine_gather #(
    parameter ROWS = 8,
    parameter WORD = 8,
    parameter HALF = 9  // address bits of a half
) (
    input clk,
    input rst,
    input valid,
    input [18*32-1:0] descriptor,
    output take,
    input [15:0] loaded,
    input [15:0] stored,
    // The array's side
    input context_full,  // the call before has not begun yet
    input released,              // one cycle: the array has read the oldest full half
    input array_idle,
    output reg gathered,         // one cycle: a half is full
    output reg [7:0] gathered_rows,
    output reg gathered_final,   // it is the call's last one
    output pooled,               // one cycle: a call of pooling is over
    output waits_load,
    output waits_store,
    output active,
    // Input buffer, read; a word comes one cycle after its address
    output [15:0] input_address,
    input [8*WORD-1:0] input_word,
    // Operand buffer, write
    output reg [ROWS-1:0] a_write,
    output reg [HALF:0] a_address,
    output reg [8*WORD-1:0] a_word,
    // Results' buffer, write
    output reg pool_write,
    output reg [15:0] pool_address,
    output [8*WORD-1:0] pool_word
);
  localparam ROW_BITS = ROWS > 1 ? $clog2(ROWS) : 1;

  wire is_pool = descriptor[4];
  wire [15:0] since_loaded = loaded - descriptor[63:48];
  wire [15:0] since_stored = stored - descriptor[47:32];
  wire may = valid && !running;
  wire is_free = is_pool ? array_idle : !context_full;
  assign waits_load = may && since_loaded[15];
  assign waits_store = may && !since_loaded[15] && since_stored[15];
  assign take = may && !since_loaded[15] && !since_stored[15] && is_free && !finishing;

  reg running, pool, half;
  reg signed [15:0] in_height, in_width, line_y, pixel_x, first_x, y, x;
  reg [15:0] out_width, columns_left, pixels_left, words, words_left, pitch, row_pitch, pixel_step, line_step, to, to_step;
  reg [15:0] line_at, pixel_at, row_at, column_at, at;
  reg [7:0] height, width, rows_left, columns_of_window_left, stride_x, stride_y, padding;
  reg [4:0] apart_x, apart_y;  // columns and lines from one position of a window to the next
  reg [ROW_BITS-1:0] row;
  reg [HALF-1:0] index;
  reg [7:0] filled;
  assign active = running || finishing;
  assign input_address = at;

  reg [1:0] claimed;
  reg oldest;
  wire steps = running && !(claimed[half] && !pool);
  wire ends_words = words_left == 1;
  wire ends_columns = ends_words && columns_of_window_left == 1;
  wire ends_window = ends_columns && rows_left == 1;
  wire ends_pixels = ends_window && pixels_left == 1;
  wire ends_fold = ends_window && (ends_pixels || row == ROWS[ROW_BITS-1:0] - 1'b1);
  wire ends_line = columns_left == 1;
  wire is_inside = y >= 0 && y < in_height && x >= 0 && x < in_width;

  wire [15:0] next_line_at = line_at + line_step;
  wire [15:0] next_pixel_at = ends_line ? next_line_at : pixel_at + pixel_step;
  wire [15:0] next_row_at = row_at + row_pitch;
  wire [15:0] next_column_at = column_at + pitch;
  wire signed [15:0] next_line_y = line_y + $signed({8'b0, stride_y});
  wire signed [15:0] next_pixel_x = ends_line ? first_x : pixel_x + $signed({8'b0, stride_x});

  always @(posedge clk) begin
    if (rst) begin
      running <= 0;
      half <= 0;
      oldest <= 0;
      claimed <= 0;
    end else begin
      if (take) running <= 1;
      else if (steps && ends_pixels) running <= 0;
      if (steps && ends_fold && !pool) begin
        half <= !half;
        claimed[half] <= 1;
      end
      if (released) begin
        oldest <= !oldest;
        claimed[oldest] <= 0;
      end
    end
    if (take) begin
      pool <= is_pool;
      {line_at, pixel_at, row_at, column_at, at} <= {5{descriptor[79:64]}};
      {in_height, in_width} <= descriptor[127:96];
      line_y <= descriptor[159:144];
      y <= descriptor[159:144];
      {first_x, pixel_x, x} <= {3{descriptor[143:128]}};
      {out_width, columns_left} <= {2{descriptor[191:176]}};
      pixels_left <= descriptor[175:160];
      {height, rows_left} <= {2{descriptor[223:216]}};
      {width, columns_of_window_left} <= {2{descriptor[215:208]}};
      {words, words_left} <= {2{descriptor[207:192]}};
      {pitch, row_pitch} <= descriptor[255:224];
      {pixel_step, line_step} <= descriptor[287:256];
      {stride_x, stride_y, padding} <= descriptor[319:296];
      apart_x <= {1'b0, descriptor[15:12]} + 5'd1;
      apart_y <= {1'b0, descriptor[3:0]} + 5'd1;
      to <= descriptor[383:368];
      to_step <= descriptor[399:384];
      row <= 0;
      index <= 0;
      filled <= 1;
    end else if (steps) begin
      index <= ends_window ? {HALF{1'b0}} : index + 1'b1;
      words_left <= ends_words ? words : words_left - 1'b1;
      if (ends_words) columns_of_window_left <= ends_columns ? width : columns_of_window_left - 1'b1;
      if (ends_columns) rows_left <= ends_window ? height : rows_left - 1'b1;
      if (ends_window) begin
        pixels_left <= pixels_left - 1'b1;
        columns_left <= ends_line ? out_width : columns_left - 1'b1;
        row <= ends_fold ? {ROW_BITS{1'b0}} : row + 1'b1;
        filled <= ends_fold ? 8'd1 : filled + 1'b1;
        {pixel_at, row_at, column_at, at} <= {4{next_pixel_at}};
        {pixel_x, x} <= {2{next_pixel_x}};
        y <= ends_line ? next_line_y : line_y;
        if (ends_line) begin
          line_at <= next_line_at;
          line_y <= next_line_y;
        end
        to <= to + to_step;
      end else if (ends_columns) begin
        {row_at, column_at, at} <= {3{next_row_at}};
        y <= y + $signed({11'b0, apart_y});
        x <= pixel_x;
      end else if (ends_words) begin
        {column_at, at} <= {2{next_column_at}};
        x <= x + $signed({11'b0, apart_x});
      end else begin
        at <= at + 1'b1;
      end
    end
  end

  // One cycle later the word is there, or it is padding.
  reg read, read_inside, read_first, read_last_of_window, read_ends_fold, read_final, read_pool;
  reg [ROW_BITS-1:0] read_row;
  reg [HALF:0] read_to;
  reg [15:0] read_pool_to;
  reg [7:0] read_filled, read_padding;
  wire [8*WORD-1:0] word = read_inside ? input_word : {WORD{read_padding}};
  reg [8*WORD-1:0] largest;
  reg finishing, pool_final;
  assign pooled = pool_final;
  assign pool_word = largest;
  genvar i;
  generate
    for (i = 0; i < WORD; i = i + 1) begin : lane
      wire signed [7:0] new_byte = word[8*i+:8];
      wire signed [7:0] old_byte = largest[8*i+:8];
      always @(posedge clk) if (read) largest[8*i+:8] <= read_first || new_byte > old_byte ? new_byte : old_byte;
    end
  endgenerate
  always @(posedge clk) begin
    read <= steps && !rst;
    read_inside <= is_inside;
    read_first <= index == 0;
    read_last_of_window <= ends_window;
    read_ends_fold <= ends_fold;
    read_final <= ends_pixels;
    read_pool <= pool;
    read_row <= row;
    read_to <= {half, index};
    read_pool_to <= to;
    read_filled <= filled;
    read_padding <= padding;

    a_write <= read && !read_pool ? {{ROWS - 1{1'b0}}, 1'b1} << read_row : {ROWS{1'b0}};
    a_address <= read_to;
    a_word <= word;
    gathered <= read && !read_pool && read_ends_fold;
    gathered_rows <= read_filled;
    gathered_final <= read_final;
    pool_write <= read && read_pool && read_last_of_window;
    pool_address <= read_pool_to;
    pool_final <= read && read_pool && read_final;
    finishing <= (steps || (read && read_pool)) && !rst;
  end
  wire unused = &{1'b0, since_loaded[14:0], since_stored[14:0], descriptor[31:16], descriptor[11:5], descriptor[95:80],
                  descriptor[295:288], descriptor[367:320],
                  descriptor[575:400]};
endmodule

// Row-wise work: a row is the channels of a pixel, and is read once for each pass, WORD bytes per cycle.
//   table          o = table[x]
//   softmax        m = max x, S = sum table[m - x], of which q * 2^k are the upper bits;      o = table[m - x]
//   normalization  W = n * sum x^2 - (sum x)^2 + addend / 64, whose root begins with q * 2^k; o = n * x - sum x
// q has 17 bits, and r is floor(2^33 / q), at most 2^17 - 1; for a table r is 2^16 and k is 0. A result is
//   t = (o * r) >> (shift + k), rounded half up;  y = (t * g + b) >> last_shift, clipped to a byte
// with g and b of the channel, or of all. b has the zero point and the half for the rounding.
//
// Fields of a descriptor, by 32-bit word: see rows.py, which writes them.
module engine_rows #(
    parameter WORD = 8,
    parameter COLS = 8
) (
    input clk,
    input rst,
    input valid,
    input [18*32-1:0] descriptor,
    output take,
    input [15:0] loaded,
    input [15:0] stored,
    input array_idle,
    output waits_load,
    output waits_store,
    output active,
    output reg over,  // one cycle: a call is over
    // Input buffer, and constants of COLS channels: one cycle after the address
    output [15:0] input_address,
    input [8*WORD-1:0] input_word,
    output [15:0] channel_address,
    input [64*COLS-1:0] channels,
    // Entries of the table as they are loaded, 32 bits each
    input table_write,
    input [15:0] table_address,
    input [8*WORD-1:0] table_word,
    // Results' buffer
    output result_write,
    output [15:0] result_address,
    output [8*WORD-1:0] result_word
);
  localparam LATENCY = 11;    // from the read of a word to its result
  localparam [3:0] GAP = 7;   // from the last read of a pass to the first one of the next
  localparam [3:0] LAST_GAP = LATENCY + 2;
  localparam PARTS = COLS / WORD;
  localparam PART_SHIFT = $clog2(PARTS);
  localparam ENTRIES = WORD / 4;  // of the table in a word
  localparam ENTRY_SHIFT = $clog2(ENTRIES);
  localparam [2:0] IDLE = 0, MAXIMUM = 1, SUMS = 2, SCALAR = 3, RESULTS = 4;
  localparam [5:0] ROOT = 4, QUOTIENT = 21, SCALAR_END = 40;  // steps of the work for a row
  genvar i;
  integer j, size;

  // --- one call, row by row -------------------------------------------------------------------------------------------
  wire [15:0] since_loaded = loaded - descriptor[63:48];
  wire [15:0] since_stored = stored - descriptor[47:32];
  reg [2:0] state;
  wire may = valid && !active;
  assign waits_load = may && since_loaded[15];
  assign waits_store = may && !since_loaded[15] && since_stored[15];
  assign take = may && !since_loaded[15] && !since_stored[15] && array_idle;
  assign active = state != IDLE || over;

  reg is_softmax, is_norm, is_per_channel;
  reg [15:0] row_at, at, rows_left, words, words_left, index, count, to, fold;
  reg [5:0] shift, last_shift, step;
  reg [39:0] addend;
  reg [3:0] gap;
  wire reads = (state == MAXIMUM || state == SUMS || state == RESULTS) && gap == 0;
  wire ends_pass = reads && words_left == 1;
  wire pass_over = gap == 1;
  wire row_over = pass_over && state == RESULTS;
  wire is_last = rows_left == 1;
  assign input_address = at;
  always @(posedge clk) begin
    over <= row_over && is_last && !rst;
    if (rst) begin
      state <= IDLE;
      gap <= 0;
    end else begin
      if (take) state <= descriptor[9] ? MAXIMUM : descriptor[10] ? SUMS : RESULTS;
      else if (row_over) state <= is_last ? IDLE : is_softmax ? MAXIMUM : is_norm ? SUMS : RESULTS;
      else if (pass_over) state <= state == MAXIMUM ? SUMS : SCALAR;
      else if (state == SCALAR && step == SCALAR_END) state <= RESULTS;
      if (ends_pass) gap <= state == RESULTS && is_last ? LAST_GAP : GAP;
      else if (gap != 0) gap <= gap - 1'b1;
    end
    if (take) begin
      {is_per_channel, is_norm, is_softmax} <= descriptor[11:9];
      {row_at, at} <= {2{descriptor[79:64]}};
      rows_left <= descriptor[127:112];
      {words, words_left} <= {2{descriptor[111:96]}};
      count <= descriptor[143:128];
      {fold, to} <= descriptor[191:160];
      shift <= descriptor[197:192];
      last_shift <= descriptor[205:200];
      addend <= descriptor[263:224];
      index <= 0;
    end else if (reads) begin
      at <= ends_pass ? row_at : at + 1'b1;
      index <= ends_pass ? 16'd0 : index + 1'b1;
      words_left <= ends_pass ? words : words_left - 1'b1;
      if (state == RESULTS) to <= to + 1'b1;
    end else if (row_over) begin
      row_at <= row_at + words;
      at <= row_at + words;
      rows_left <= rows_left - 1'b1;
    end
  end

  // --- what goes along with a word, so many cycles after its read -------------------------------------------------------
  reg [3:1] finds;
  reg [5:1] sums;
  reg [15:0] index_1;
  wire [15:0] index_6;
  wire [64*WORD-1:0] of_word;
  systolic_delay #(.WIDTH(17), .DEPTH(LATENCY)) to_result (
      .clk(clk), .in({reads && state == RESULTS, to}), .out({result_write, result_address})
  );
  systolic_delay #(.WIDTH(16), .DEPTH(6)) to_channel (
      .clk(clk), .in(is_per_channel ? index : 16'd0), .out(index_6)
  );
  assign channel_address = fold + (index_6 >> PART_SHIFT);
  generate
    if (PARTS == 1) begin : one_part
      assign of_word = channels;
    end else begin : several_parts
      reg [PART_SHIFT-1:0] part;
      always @(posedge clk) part <= index_6[PART_SHIFT-1:0];
      assign of_word = channels[part*64*WORD+:64*WORD];
    end
  endgenerate
  always @(posedge clk) begin
    finds <= {finds[2:1], reads && state == MAXIMUM};
    sums <= {sums[4:1], reads && state == SUMS};
    index_1 <= index;
  end

  // --- a byte each ------------------------------------------------------------------------------------------------------
  wire signed [15:0] there = $signed(count) - $signed(index_1 << $clog2(WORD));  // channels from this word on
  wire signed [11:0] count_signed = {1'b0, count[10:0]};
  reg signed [7:0] largest;
  reg signed [18:0] sum;
  reg [16:0] r;
  reg [5:0] t_shift;
  wire [8*WORD-1:0] values;
  wire [16*WORD-1:0] squares;
  wire [17*WORD-1:0] exponentials;
  generate
    for (i = 0; i < WORD; i = i + 1) begin : lane
      localparam signed [15:0] LANE = i;
      wire signed [7:0] x = input_word[8*i+:8];
      wire [7:0] below = largest - x;
      // 2: the byte, or what changes no maximum and no sum. 3: entry, square. 4: operand.
      reg signed [7:0] value, value_3;
      reg [7:0] key;
      reg is_there, is_there_3, is_there_4;
      reg signed [15:0] square;
      reg signed [19:0] scaled, operand;
      // Products of a byte are sums of a few shifted numbers, so that multipliers are left for wider ones.
      reg signed [19:0] value_squared, value_scaled;
      integer k;
      always @(*) begin
        value_squared = 0;
        value_scaled = 0;
        for (k = 0; k < 7; k = k + 1)
          if (value[k]) begin
            value_squared = value_squared + ({{12{value[7]}}, value} <<< k);
            value_scaled = value_scaled + ({{8{count_signed[11]}}, count_signed} <<< k);
          end
        if (value[7]) begin
          value_squared = value_squared - ({{12{value[7]}}, value} <<< 7);
          value_scaled = value_scaled - ({{8{count_signed[11]}}, count_signed} <<< 7);
        end
      end
      wire [8*WORD-1:0] entries;
      wire [17:0] entry;
      engine_memory #(.WIDTH(8 * WORD), .DEPTH(256 / ENTRIES)) entries_of_table (
          .clk(clk), .write(table_write), .write_address(table_address[7-ENTRY_SHIFT:0]), .write_word(table_word),
          .read_address(key[7:ENTRY_SHIFT]), .read_word(entries)
      );
      if (ENTRIES == 1) begin : one_entry
        assign entry = entries[17:0];
      end else begin : several_entries
        reg [ENTRY_SHIFT-1:0] select;
        always @(posedge clk) select <= key[ENTRY_SHIFT-1:0];
        assign entry = entries[32*select+:18];
      end
      // 5: product. 6, 7: t. 8 to 10: y before it is clipped. 11: y.
      reg signed [37:0] product;
      reg signed [18:0] halved;
      reg signed [17:0] t;
      reg signed [31:0] b;
      reg signed [35:0] scaled_t;
      reg signed [36:0] with_b, shifted;
      reg [7:0] y;
      wire signed [17:0] r_signed = {1'b0, r};
      wire signed [17:0] g = of_word[64*i+32+:18];
      wire signed [37:0] halved_wide = product >>> t_shift;
      wire [18:0] rounded = halved + 19'sd1;
      always @(posedge clk) begin
        value <= there > LANE ? x : is_softmax ? -8'sd128 : 8'sd0;
        key <= is_softmax ? below : x;
        is_there <= there > LANE;

        value_3 <= value;
        square <= value_squared[15:0];
        scaled <= value_scaled;
        is_there_3 <= is_there;

        operand <= is_norm ? scaled - {sum[18], sum} : {{2{entry[17]}}, entry};
        is_there_4 <= is_there_3;

        product <= operand * r_signed;
        halved <= halved_wide[18:0];
        t <= rounded[18:1];
        scaled_t <= t * g;
        b <= of_word[64*i+:32];
        with_b <= {scaled_t[35], scaled_t} + {{5{b[31]}}, b};
        shifted <= with_b >>> last_shift;
        y <= !shifted[36] && |shifted[35:7] ? 8'h7f : shifted[36] && !(&shifted[35:7]) ? 8'h80 : shifted[7:0];
      end
      assign values[8*i+:8] = finds[2] ? value : value_3;
      assign squares[16*i+:16] = square;
      assign exponentials[17*i+:17] = is_there_4 ? operand[16:0] : 17'd0;
      assign result_word[8*i+:8] = y;
      wire unused = &{1'b0, value_squared[19:16], entries, halved_wide[37:19], rounded[0], of_word[64*i+50+:14]};
    end
  endgenerate

  // --- of a row: maximum, sums ------------------------------------------------------------------------------------------
  reg [8*WORD-1:0] best;
  reg signed [7:0] word_largest;
  reg signed [18:0] word_sum;
  reg [26:0] word_squares, sum_of_squares;
  reg [27:0] word_exponentials, sum_of_exponentials;
  always @(*) begin
    best = values;
    for (size = WORD / 2; size > 0; size = size / 2)
      for (j = 0; j < size; j = j + 1)
        if ($signed(best[8*(j+size)+:8]) > $signed(best[8*j+:8])) best[8*j+:8] = best[8*(j+size)+:8];
  end
  reg signed [18:0] added;
  reg [26:0] added_squares;
  reg [27:0] added_exponentials;
  always @(*) begin
    added = 0;
    added_squares = 0;
    added_exponentials = 0;
    for (j = 0; j < WORD; j = j + 1) begin
      added = added + {{11{values[8*j+7]}}, values[8*j+:8]};
      added_squares = added_squares + {11'b0, squares[16*j+:16]};
      added_exponentials = added_exponentials + {11'b0, exponentials[17*j+:17]};
    end
  end
  wire clears = take || row_over;
  always @(posedge clk) begin
    word_largest <= best[7:0];
    word_sum <= added;
    word_squares <= added_squares;
    word_exponentials <= added_exponentials;
    if (clears) begin
      largest <= -8'sd128;
      sum <= 0;
      sum_of_squares <= 0;
      sum_of_exponentials <= 0;
    end else begin
      if (finds[3] && word_largest > largest) largest <= word_largest;
      if (sums[4]) sum <= sum + word_sum;
      if (sums[4]) sum_of_squares <= sum_of_squares + word_squares;
      if (sums[5]) sum_of_exponentials <= sum_of_exponentials + word_exponentials;
    end
  end

  // --- of a row: q, k and r ---------------------------------------------------------------------------------------------
  reg [35:0] scaled_squares, squared;
  reg [41:0] total, normal;
  reg [5:0] zeros, found;
  reg [16:0] q, remainder;
  reg [18:0] root_remainder;
  reg [17:0] quotient;
  wire signed [37:0] sum_squared = sum * sum;
  wire [35:0] variance = scaled_squares - squared;
  wire [20:0] root_wide = {root_remainder, normal[41:40]};
  wire [20:0] root_trial = {2'b0, q, 2'b01};
  wire [20:0] root_left = root_wide - root_trial;
  wire root_bit = root_wide >= root_trial;
  wire [17:0] twice = {remainder, 1'b0};
  wire [16:0] twice_left = twice[16:0] - q;
  wire quotient_bit = twice >= {1'b0, q};
  wire in_root = is_norm && step >= ROOT && step < QUOTIENT;
  always @(*) begin
    found = 0;
    for (j = 0; j < 42; j = j + 1) if (total[j]) found = 6'd41 - j[5:0];
    if (is_norm) found[0] = 1'b0;
  end
  always @(posedge clk) begin
    if (state != SCALAR) step <= 0;
    else step <= step == ROOT - 1 && is_softmax ? QUOTIENT : step + 1'b1;
    // 0 to 3: the sum or the variance, moved to the left by whole powers of what its root needs.
    scaled_squares <= {9'b0, sum_of_squares} * {25'b0, count[10:0]};
    squared <= sum_squared[35:0];
    total <= is_norm ? {variance, 6'b0} + {2'b0, addend} : {14'b0, sum_of_exponentials};
    zeros <= found;
    normal <= in_root ? normal << 2 : total << zeros;
    // 4 to 20: the root, bit by bit. 22 to 39: the quotient.
    if (step == ROOT - 1) begin
      q <= 0;
      root_remainder <= 0;
    end else if (in_root) begin
      q <= {q[15:0], root_bit};
      root_remainder <= root_bit ? root_left[18:0] : root_wide[18:0];
    end
    if (is_softmax && step == QUOTIENT) q <= normal[41:25];
    if (step <= QUOTIENT) begin
      remainder <= 17'd32768;
    end else begin
      remainder <= quotient_bit ? twice_left : twice[16:0];
      quotient <= {quotient[16:0], quotient_bit};
    end
    if (take) begin
      r <= 17'd65536;
      t_shift <= descriptor[197:192] - 6'd1;
    end else if (state == SCALAR && step == SCALAR_END) begin
      r <= quotient[17] ? 17'h1ffff : quotient[16:0];
      // k is 25 - zeros, or 1 - zeros / 2
      t_shift <= shift + (is_norm ? -{1'b0, zeros[5:1]} : 6'd24 - zeros);
    end
  end
  wire unused = &{1'b0, since_loaded[14:0], since_stored[14:0], descriptor[31:12], descriptor[8:0], descriptor[95:80],
                  descriptor[159:144], descriptor[199:198], descriptor[223:206], descriptor[575:264], count[15:11],
                  best[8*WORD-1:8], root_left[20:19], sum_squared[37:36], table_address, index_6};
endmodule

// The engine: three units with a queue of descriptors each. `load` reads memory into the buffers, `gather` and `feed` let
// the array compute on them, or `rows` computes row by row; `store` writes results to memory. A descriptor says how many
// descriptors of the other units must be over before it begins; so a buffer with two halves is filled, read and emptied
// at the same time.
//
// Host bus (AXI4-Lite, 32 bits), byte addresses:
//   0x00 write: 1 clears the counters. 0x00 read: bit 0, something is under way.
//   0x04 read: {computed, loaded}. 0x08 read: {0, stored}: descriptors that are over, modulo 2^16.
//   0x10 read: cycles in which something was under way, and it keeps how they were spent up to then. Each counts once:
//   0x14 the array took operands. It waited 0x18 for a load, 0x1c for a store, 0x20 for the gathering of windows,
//   0x24 for sums to leave, 0x28 for a descriptor; 0x2c it was idle beside row-wise work.
//   0x40, 0x44, 0x48 write: the next word of a descriptor of load, compute and store; it waits while the queue is full.
module engine #(
    parameter ROWS = 8,
    parameter COLS = 8,
    parameter SIMD = 1,
    parameter WORD = 8,             // bytes of a word of memory
    parameter PACK_COLS = 1,        // products of int8 that share a multiplier
    parameter INPUT_DEPTH = 2048,   // words of the input buffer
    parameter WINDOW_DEPTH = 256,   // words of a window in each half of the operand buffer
    parameter WEIGHT_DEPTH = 4096,  // steps of weights
    parameter CHANNEL_DEPTH = 64,   // folds along the columns, whose constants are kept
    parameter PARTIAL_DEPTH = 256,  // rows of partial sums
    parameter RESIDUAL_DEPTH = 512, // folds of rows of residuals
    parameter RESULT_DEPTH = 512,   // and of results
    parameter QUEUE_DEPTH = 512,    // words of a queue of descriptors
    parameter ROW_WORK = 1,         // 0: without the unit for row-wise work
    parameter PRODUCTS = 1,         // 0: without products of two tensors element by element
    parameter BURST = 32
) (
    input clk,
    input rst,  // hold for 64 cycles and 2 * ROWS + COLS at least: delays have no reset and are flushed
    // AXI4-Lite
    input awvalid,
    output awready,
    input [7:0] awaddr,
    input wvalid,
    output wready,
    input [31:0] wdata,
    output reg bvalid,
    input bready,
    input arvalid,
    output arready,
    input [7:0] araddr,
    output reg rvalid,
    input rready,
    output reg [31:0] rdata,
    // AXI4; bursts of whole words, INCR; several are under way, served in their order
    output mem_arvalid,
    input mem_arready,
    output [31:0] mem_araddr,
    output [7:0] mem_arlen,
    input mem_rvalid,
    output mem_rready,
    input [8*WORD-1:0] mem_rdata,
    output mem_awvalid,
    input mem_awready,
    output [31:0] mem_awaddr,
    output [7:0] mem_awlen,
    output mem_wvalid,
    input mem_wready,
    output [8*WORD-1:0] mem_wdata,
    output mem_wlast,
    input mem_bvalid,
    output mem_bready,
    output busy
);
  localparam SUM = 32;
  localparam OPERAND = PACK_COLS == 1 ? 9 : 8;  // with room for a byte less a zero point, or without
  localparam HALF = $clog2(WINDOW_DEPTH);
  localparam LANE = WORD > SIMD ? $clog2(WORD / SIMD) : 1;
  localparam RESULT_PARTS = COLS / WORD;
  localparam RESULT_SHIFT = $clog2(RESULT_PARTS);
  localparam WEIGHT_PARTS = COLS * SIMD / WORD;
  localparam CHANNEL_PARTS = COLS * 8 / WORD;
  localparam CHANNEL_SHIFT = $clog2(CHANNEL_PARTS);
  localparam INPUT_BITS = $clog2(INPUT_DEPTH);
  localparam WEIGHT_BITS = $clog2(WEIGHT_DEPTH);
  localparam CHANNEL_BITS = $clog2(CHANNEL_DEPTH);
  localparam RESIDUAL_BITS = $clog2(RESIDUAL_DEPTH);
  localparam RESULT_BITS = $clog2(RESULT_DEPTH);

  // --- queues ---------------------------------------------------------------------------------------------------------
  wire load_valid, load_take, load_full, compute_valid, compute_take, compute_full, store_valid, store_take, store_full;
  wire [6*32-1:0] load_descriptor, store_descriptor;
  wire [18*32-1:0] compute_descriptor;
  wire written = awvalid && wvalid && !bvalid && !(awaddr == 8'h40 && load_full)
      && !(awaddr == 8'h44 && compute_full) && !(awaddr == 8'h48 && store_full);
  assign awready = written;
  assign wready = written;
  engine_queue #(.WORDS(6), .DEPTH(QUEUE_DEPTH)) load_queue (
      .clk(clk), .rst(rst), .push(written && awaddr == 8'h40), .word(wdata), .full(load_full),
      .valid(load_valid), .descriptor(load_descriptor), .take(load_take)
  );
  engine_queue #(.WORDS(18), .DEPTH(QUEUE_DEPTH)) compute_queue (
      .clk(clk), .rst(rst), .push(written && awaddr == 8'h44), .word(wdata), .full(compute_full),
      .valid(compute_valid), .descriptor(compute_descriptor), .take(compute_take)
  );
  engine_queue #(.WORDS(6), .DEPTH(QUEUE_DEPTH)) store_queue (
      .clk(clk), .rst(rst), .push(written && awaddr == 8'h48), .word(wdata), .full(store_full),
      .valid(store_valid), .descriptor(store_descriptor), .take(store_take)
  );

  // --- load and store -------------------------------------------------------------------------------------------------
  wire [15:0] loaded, stored;
  reg [15:0] computed;
  wire load_busy, store_busy, load_write;
  wire load_transposes;
  wire [2:0] load_target;
  wire [15:0] load_lane, load_address, store_address;
  wire [8*WORD-1:0] load_word, store_word;
  engine_load #(.WORD(WORD), .BURST(BURST)) load (
      .clk(clk), .rst(rst), .valid(load_valid), .descriptor(load_descriptor), .take(load_take),
      .computed(computed), .stored(stored), .loaded(loaded), .busy(load_busy),
      .arvalid(mem_arvalid), .arready(mem_arready), .araddr(mem_araddr), .arlen(mem_arlen),
      .rvalid(mem_rvalid), .rready(mem_rready), .rdata(mem_rdata),
      .write(load_write), .target(load_target), .transposes(load_transposes), .lane(load_lane),
      .address(load_address), .word(load_word)
  );
  engine_store #(.WORD(WORD), .BURST(BURST)) store (
      .clk(clk), .rst(rst), .valid(store_valid), .descriptor(store_descriptor), .take(store_take),
      .computed(computed), .stored(stored), .busy(store_busy), .address(store_address), .word(store_word),
      .awvalid(mem_awvalid), .awready(mem_awready), .awaddr(mem_awaddr), .awlen(mem_awlen),
      .wvalid(mem_wvalid), .wready(mem_wready), .wdata(mem_wdata), .wlast(mem_wlast),
      .bvalid(mem_bvalid), .bready(mem_bready)
  );

  // --- windows and steps, or rows ----------------------------------------------------------------------------------------------
  wire released, context_full, gathered, gathered_final, pooled, waits_load, waits_store, gathering, window_write, pool_write;
  wire [7:0] gathered_rows;
  wire [15:0] input_address, window_result, pool_address;
  wire [8*WORD-1:0] input_word, window_word, pool_word, a_word;
  wire [ROWS-1:0] a_write;
  wire [HALF:0] a_write_address, a_address;
  wire [15:0] b_address;
  wire feeding, feed, last, push, push_final, blocked, steps, begins, waits_for_room;
  wire [18*32-1:0] beginning;
  wire [LANE-1:0] lane;
  wire [15:0] push_result, push_residual, push_partial, push_channels;
  wire [7:0] push_rows;
  reg [1:0] calls;  // that were begun and are not over
  reg newest;
  wire array_idle = !feeding && !context_full && calls == 0;
  wire gather_take, gather_waits_load, gather_waits_store, gathering_windows;
  wire rows_take, rows_waits_load, rows_waits_store, in_rows, rows_over, rows_write;
  wire [15:0] window_address, row_address, row_channels, rows_result;
  wire [8*WORD-1:0] rows_word;
  wire [COLS*64-1:0] constants;
  wire is_rows = compute_descriptor[8];
  assign compute_take = gather_take || rows_take;
  assign waits_load = gather_waits_load || rows_waits_load;
  assign waits_store = gather_waits_store || rows_waits_store;
  assign gathering = gathering_windows && !in_rows;
  assign input_address = in_rows ? row_address : window_address;
  generate
    if (ROW_WORK) begin : with_row_work
      engine_rows #(.WORD(WORD), .COLS(COLS)) rows (
          .clk(clk), .rst(rst), .valid(compute_valid && is_rows), .descriptor(compute_descriptor), .take(rows_take),
          .loaded(loaded), .stored(stored), .array_idle(array_idle && !gathering_windows),
          .waits_load(rows_waits_load), .waits_store(rows_waits_store), .active(in_rows), .over(rows_over),
          .input_address(row_address), .input_word(input_word), .channel_address(row_channels), .channels(constants),
          .table_write(load_write && load_target == 4), .table_address(load_address), .table_word(load_word),
          .result_write(rows_write), .result_address(rows_result), .result_word(rows_word)
      );
    end else begin : without_row_work
      assign {rows_take, rows_waits_load, rows_waits_store, in_rows, rows_over, rows_write} = 6'b0;
      assign {row_address, row_channels, rows_result} = 48'b0;
      assign rows_word = 0;
    end
  endgenerate
  engine_gather #(.ROWS(ROWS), .WORD(WORD), .HALF(HALF)) gather (
      .clk(clk), .rst(rst), .valid(compute_valid && !is_rows && !in_rows), .descriptor(compute_descriptor),
      .take(gather_take), .loaded(loaded), .stored(stored), .context_full(context_full), .released(released), .array_idle(array_idle),
      .gathered(gathered), .gathered_rows(gathered_rows), .gathered_final(gathered_final), .pooled(pooled),
      .waits_load(gather_waits_load), .waits_store(gather_waits_store), .active(gathering_windows),
      .input_address(window_address), .input_word(input_word),
      .a_write(a_write), .a_address(a_write_address), .a_word(a_word),
      .pool_write(window_write), .pool_address(window_result), .pool_word(window_word)
  );
  // What a pool or a row-wise call makes goes to the results word by word.
  assign pool_write = window_write || rows_write;
  assign pool_address = rows_write ? rows_result : window_result;
  assign pool_word = rows_write ? rows_word : window_word;
  wire [7:0] a_zero, b_zero;
  engine_feed #(.ROWS(ROWS), .WORD(WORD), .SIMD(SIMD), .HALF(HALF), .LANE(LANE)) feeder (
      .clk(clk), .rst(rst), .context_set(gather_take && !compute_descriptor[4]), .descriptor(compute_descriptor),
      .context_full(context_full), .gathered(gathered), .gathered_rows(gathered_rows),
      .gathered_final(gathered_final), .released(released), .a_address(a_address), .b_address(b_address),
      .lane(lane), .feed(feed), .last(last), .a_zero(a_zero), .b_zero(b_zero), .push(push),
      .push_result(push_result), .push_residual(push_residual), .push_partial(push_partial), .push_channels(push_channels), .push_rows(push_rows), .push_final(push_final),
      .blocked(blocked), .full_behind(calls == 2), .begins(begins), .beginning(beginning),
      .waits_for_room(waits_for_room), .active(feeding), .steps(steps)
  );

  // --- buffers of operands --------------------------------------------------------------------------------------------
  wire [ROWS*8*WORD-1:0] a_words;
  wire [COLS*SIMD*8-1:0] b_words;
  engine_memory #(.WIDTH(8 * WORD), .DEPTH(INPUT_DEPTH)) inputs (
      .clk(clk), .write(load_write && load_target == 0), .write_address(load_address[INPUT_BITS-1:0]),
      .write_word(load_word), .read_address(input_address[INPUT_BITS-1:0]), .read_word(input_word)
  );
  engine_wide_memory #(.PART(8 * WORD), .PARTS(ROWS), .DEPTH(2 * WINDOW_DEPTH)) windows (
      .clk(clk), .write(a_write), .write_address(a_write_address), .write_word({ROWS{a_word}}),
      .read_address(a_address), .read_word(a_words)
  );
  wire [CHANNEL_PARTS-1:0] channel_part;
  wire [RESULT_PARTS-1:0] residual_part, pool_part;
  engine_part #(.PARTS(CHANNEL_PARTS)) of_channels (.address(load_address), .part(channel_part));
  engine_part #(.PARTS(RESULT_PARTS)) of_residuals (.address(load_address), .part(residual_part));
  engine_part #(.PARTS(RESULT_PARTS)) of_pools (.address(pool_address), .part(pool_part));
  engine_weights #(.WORD(WORD), .PARTS(WEIGHT_PARTS), .DEPTH(WEIGHT_DEPTH)) weights (
      .clk(clk), .write(load_write && load_target == 1), .transposes(load_transposes), .lane(load_lane),
      .address(load_address), .word(load_word), .step(b_address[WEIGHT_BITS-1:0]), .words(b_words)
  );

  // --- array ----------------------------------------------------------------------------------------------------------
  wire [ROWS*SIMD*8-1:0] a_sliced;
  wire [ROWS*SIMD*OPERAND-1:0] a;
  wire [COLS*SIMD*OPERAND-1:0] b;
  engine_operands #(.COUNT(ROWS * SIMD), .BITS(OPERAND)) of_rows (
      .clk(clk), .bytes(a_sliced), .zero(a_zero), .operands(a)
  );
  engine_operands #(.COUNT(COLS * SIMD), .BITS(OPERAND)) of_columns (
      .clk(clk), .bytes(b_words), .zero(b_zero), .operands(b)
  );
  reg array_feed, array_last;
  wire drain;
  wire [ROWS-1:0] drain_rows;
  wire [COLS-1:0] sums_valid;
  wire [COLS*SUM-1:0] sums;
  genvar r, c;
  generate
    for (r = 0; r < ROWS; r = r + 1) begin : row
      wire [8*WORD-1:0] word = a_words[r*8*WORD+:8*WORD];
      if (WORD == SIMD) begin : whole
        assign a_sliced[r*SIMD*8+:SIMD*8] = word;
      end else begin : slice
        assign a_sliced[r*SIMD*8+:SIMD*8] = word[lane*SIMD*8+:SIMD*8];
      end
    end
  endgenerate
  always @(posedge clk) begin
    array_feed <= feed && !rst;
    array_last <= last && !rst;
  end
  systolic_drain #(.ROWS(ROWS)) drainer (
      .clk(clk), .rst(rst), .last(array_last), .drain(drain), .shift(drain_rows)
  );
  systolic_core #(
      .ROWS(ROWS), .COLS(COLS), .WIDTH(OPERAND), .ACC_WIDTH(SUM), .PACK_ROWS(1), .PACK_COLS(PACK_COLS), .SIMD(SIMD),
      .PIPELINED(1)
  ) core (
      .clk(clk), .rst(rst), .feed(array_feed), .last(array_last), .drain(drain), .drain_rows(drain_rows), .a(a), .b(b),
      .result_valid(sums_valid), .result(sums)
  );

  // --- what is said about the two calls that are under way --------------------------------------------------------------
  localparam SAID = 148;
  reg [2*SAID-1:0] said;
  wire result_final;
  always @(posedge clk) begin
    if (begins) said[newest*SAID+:SAID] <= {beginning[9], beginning[7:5], beginning[95:80], beginning[575:448]};
    if (rst) begin
      newest <= 0;
      calls <= 0;
      computed <= 0;
    end else begin
      if (begins) newest <= !newest;
      calls <= calls + {1'b0, begins} - {1'b0, result_final};
      if (result_final || pooled || rows_over) computed <= computed + 1'b1;
    end
  end

  // --- folds in the array, and their sums as they leave -----------------------------------------------------------------
  wire pop, folds_empty, fold_final, fold_call, row_valid, row_final, row_call;
  wire [15:0] fold_result, fold_residual, fold_partial, fold_channels, row_result, row_residual, channel_address;
  wire [7:0] fold_rows;
  wire [COLS*SUM-1:0] row_sums;
  engine_fifo #(.WIDTH(74)) folds (
      .clk(clk), .rst(rst), .push(push),
      .in({push_result, push_residual, push_partial, push_channels, push_rows, push_final, !newest}), .pop(pop),
      .out({fold_result, fold_residual, fold_partial, fold_channels, fold_rows, fold_final, fold_call}),
      .empty(folds_empty), .full(blocked)
  );
  wire [SAID-1:0] fold_said = fold_call ? said[2*SAID-1:SAID] : said[SAID-1:0];
  engine_collect #(
      .ROWS(ROWS), .COLS(COLS), .SUM(SUM), .PACK_COLS(PACK_COLS), .PARTIAL_DEPTH(PARTIAL_DEPTH)
  ) collect (
      .clk(clk), .rst(rst), .valid(sums_valid), .sums(sums), .result(fold_result), .residual(fold_residual),
      .partial(fold_partial), .channels(fold_channels), .rows(fold_rows), .is_final(fold_final), .adds(fold_said[144]),
      .completes(fold_said[145]), .row_step(fold_said[143:128]), .call(fold_call), .pop(pop),
      .channel_address(channel_address), .row_valid(row_valid), .row_final(row_final), .row_sums(row_sums),
      .row_result(row_result), .row_residual(row_residual), .row_call(row_call)
  );

  // --- epilogue: see engine_lane for the cycles behind the sum at which each figure counts --------------------------------
  localparam STAGES = 16;
  reg [STAGES-1:0] call;  // of the row that is so many cycles, plus one, behind its sums
  wire [15:0] residual_address, result_address;
  wire result_valid;
  reg [COLS*64-1:0] channels;
  wire [15:0] constants_address = in_rows ? row_channels : channel_address;
  wire [COLS*8-1:0] residuals, results;
  always @(posedge clk) begin
    call <= {call[STAGES-2:0], row_call};
    channels <= constants;
  end
  systolic_delay #(.WIDTH(16), .DEPTH(9)) to_residual (.clk(clk), .in(row_residual), .out(residual_address));
  systolic_delay #(.WIDTH(18), .DEPTH(STAGES)) to_result (
      .clk(clk), .in({row_final, row_valid, row_result}), .out({result_final, result_valid, result_address})
  );
  engine_wide_memory #(.PART(8 * WORD), .PARTS(CHANNEL_PARTS), .DEPTH(CHANNEL_DEPTH)) of_channel (
      .clk(clk), .write(load_write && load_target == 2 ? channel_part : {CHANNEL_PARTS{1'b0}}),
      .write_address(load_address[CHANNEL_SHIFT+:CHANNEL_BITS]), .write_word({CHANNEL_PARTS{load_word}}),
      .read_address(constants_address[CHANNEL_BITS-1:0]), .read_word(constants)
  );
  engine_wide_memory #(.PART(8 * WORD), .PARTS(RESULT_PARTS), .DEPTH(RESIDUAL_DEPTH)) of_residual (
      .clk(clk), .write(load_write && load_target == 3 ? residual_part : {RESULT_PARTS{1'b0}}),
      .write_address(load_address[RESULT_SHIFT+:RESIDUAL_BITS]), .write_word({RESULT_PARTS{load_word}}),
      .read_address(residual_address[RESIDUAL_BITS-1:0]), .read_word(residuals)
  );
  wire [127:0] at_8 = call[7] ? said[SAID+:128] : said[127:0];
  wire [127:0] at_9 = call[8] ? said[SAID+:128] : said[127:0];
  wire [127:0] at_10 = call[9] ? said[SAID+:128] : said[127:0];
  wire [127:0] at_11 = call[10] ? said[SAID+:128] : said[127:0];
  wire [127:0] at_13 = call[12] ? said[SAID+:128] : said[127:0];
  wire [127:0] at_15 = call[14] ? said[SAID+:128] : said[127:0];
  wire adds_residual = call[14] ? said[SAID+146] : said[146];
  wire multiplies = call[10] ? said[SAID+147] : said[147];
  generate
    for (c = 0; c < COLS; c = c + 1) begin : lane_of
      wire [63:0] of = channels[c*64+:64];
      engine_lane #(.SUM(SUM), .PRODUCTS(PRODUCTS)) epilogue (
          .clk(clk), .sum(row_sums[c*SUM+:SUM]), .bias(of[31:0]), .factor(of[55:32]), .shift(of[61:56]),
          .zero(at_8[31:24]), .low(at_9[23:16]), .high(at_9[15:8]), .own_zero(at_10[31:24]),
          .residual(residuals[c*8+:8]), .residual_zero(at_10[7:0]), .own_factor(at_11[88:64]),
          .residual_factor(at_11[120:96]), .multiplies(multiplies), .residual_shift(at_13[37:32]), .adds_residual(adds_residual),
          .last_zero(at_15[63:56]), .last_low(at_15[55:48]), .last_high(at_15[47:40]), .y(results[c*8+:8])
      );
      wire unused = &{1'b0, of[63:62]};
    end
  endgenerate

  // --- results --------------------------------------------------------------------------------------------------------
  wire [COLS*8-1:0] stored_words;
  engine_wide_memory #(.PART(8 * WORD), .PARTS(RESULT_PARTS), .DEPTH(RESULT_DEPTH)) of_result (
      .clk(clk), .write(pool_write ? pool_part : {RESULT_PARTS{result_valid}}),
      .write_address(pool_write ? pool_address[RESULT_SHIFT+:RESULT_BITS] : result_address[RESULT_BITS-1:0]),
      .write_word(pool_write ? {RESULT_PARTS{pool_word}} : results),
      .read_address(store_address[RESULT_SHIFT+:RESULT_BITS]), .read_word(stored_words)
  );
  generate
    if (RESULT_PARTS == 1) begin : one_part
      assign store_word = stored_words;
    end else begin : several_parts
      reg [RESULT_SHIFT-1:0] stored_part;
      always @(posedge clk) stored_part <= store_address[RESULT_SHIFT-1:0];
      assign store_word = stored_words[stored_part*8*WORD+:8*WORD];
    end
  endgenerate

  // --- host bus, and where the cycles go --------------------------------------------------------------------------------
  reg [31:0] spent[0:7];
  reg [31:0] kept[1:7];  // of the cycle in which the first one was read
  wire waits = waits_load || waits_store;
  wire [7:0] cause;  // of this cycle; bit 0: any
  assign busy = load_busy || store_busy || load_valid || compute_valid || store_valid || gathering || in_rows || feeding
      || context_full || calls != 0;
  wire [4:0] one_of;
  assign one_of[0] = steps;
  assign one_of[3] = !steps && !waits_for_room && gathering;
  assign one_of[4] = !steps && (waits_for_room || (!gathering && !waits && calls != 0));
  assign one_of[1] = !steps && !waits_for_room && !gathering && !in_rows && (waits_load || (!waits && calls == 0 && load_busy));
  assign one_of[2] = !steps && !waits_for_room && !gathering && !in_rows
      && (waits_store || (!waits && calls == 0 && !load_busy && store_busy));
  assign cause = busy ? {in_rows, one_of == 0 && !in_rows, one_of, 1'b1} : 8'b0;
  wire cleared = written && awaddr == 8'h00 && wdata[0];
  integer i;
  always @(posedge clk) begin
    for (i = 0; i < 8; i = i + 1) begin
      if (rst || cleared) spent[i] <= 0;
      else if (cause[i]) spent[i] <= spent[i] + 1;
    end
  end
  assign arready = !rvalid;
  always @(posedge clk) begin
    if (rst) bvalid <= 0;
    else if (written) bvalid <= 1;
    else if (bready) bvalid <= 0;
    if (arvalid && arready && araddr == 8'h10) for (i = 1; i < 8; i = i + 1) kept[i] <= spent[i];
    if (rst) rvalid <= 0;
    else if (arvalid && arready) rvalid <= 1;
    else if (rready) rvalid <= 0;
    if (arvalid && arready)
      case (araddr)
        8'h00: rdata <= {31'b0, busy};
        8'h04: rdata <= {computed, loaded};
        8'h08: rdata <= {16'b0, stored};
        8'h10: rdata <= spent[0];
        8'h14: rdata <= kept[1];
        8'h18: rdata <= kept[2];
        8'h1c: rdata <= kept[3];
        8'h20: rdata <= kept[4];
        8'h24: rdata <= kept[5];
        8'h28: rdata <= kept[6];
        8'h2c: rdata <= kept[7];
        default: rdata <= 0;
      endcase
  end
  wire unused = &{1'b0, folds_empty, lane, load_address, input_address, pool_address, store_address, b_address,
                  constants_address, residual_address, result_address, at_8, at_9, at_10, at_11, at_13, at_15, fold_said,
                  beginning[447:96], beginning[79:10], beginning[8], beginning[4:0], call[STAGES-1]};
endmodule

// Operands of the array: bytes, of which a zero point is taken off where there is a bit for it.
module engine_operands #(
    parameter COUNT = 8,
    parameter BITS = 9
) (
    input clk,
    input [8*COUNT-1:0] bytes,
    input [7:0] zero,
    output reg [BITS*COUNT-1:0] operands
);
  genvar i;
  generate
    for (i = 0; i < COUNT; i = i + 1) begin : operand
      if (BITS == 8) begin : as_it_is
        always @(posedge clk) operands[8*i+:8] <= bytes[8*i+:8];
      end else begin : moved
        always @(posedge clk) operands[9*i+:9] <= {bytes[8*i+7], bytes[8*i+:8]} - {zero[7], zero};
      end
    end
  endgenerate
  wire unused = &{1'b0, zero};
endmodule

// Which of several memories side by side an address means.
module engine_part #(
    parameter PARTS = 1
) (
    input [15:0] address,
    output [PARTS-1:0] part
);
  generate
    if (PARTS == 1) begin : one
      assign part = 1'b1;
    end else begin : several
      assign part = {{PARTS - 1{1'b0}}, 1'b1} << address[$clog2(PARTS)-1:0];
    end
  endgenerate
  wire unused = &{1'b0, address};
endmodule

// A system around an engine: the bursts of a serial link reach the engine's registers and the memory that it works on.
//
// The link has the bursts of LiteX's UARTBone: a command (1 write, 2 read, 3 write all words to one address), a number of
// words, the address of the first one in words of 32 bits, and the words, most significant byte first. By byte address:
//   below 0x80000000   memory; a word of the engine's port is written when its last 32 bits come
//   0x80000000         the engine's registers (engine.v)
//   0x80000100         a write of 1 resets the engine, for 512 cycles
// The host leaves memory alone while the engine is busy.
module engine_bridge #(
    parameter WORD = 8
) (
    input clk,
    input rst,
    input in_valid,
    output in_ready,
    input [7:0] in_byte,
    output out_valid,
    input out_ready,
    output [7:0] out_byte,
    // The engine's AXI4-Lite port and its reset
    output engine_rst,
    output awvalid,
    input awready,
    output [7:0] awaddr,
    output [31:0] wdata,
    input bvalid,
    output arvalid,
    input arready,
    output [7:0] araddr,
    input rvalid,
    input [31:0] rdata,
    // Memory: bursts of one word, while `uses_memory`
    output uses_memory,
    output mem_arvalid,
    input mem_arready,
    output [31:0] mem_address,
    input mem_rvalid,
    input [8*WORD-1:0] mem_rdata,
    output mem_awvalid,
    input mem_awready,
    output mem_wvalid,
    input mem_wready,
    output reg [8*WORD-1:0] mem_wdata,
    input mem_bvalid
);
  localparam PARTS = WORD / 4;
  localparam SHIFT = $clog2(WORD);
  localparam [2:0] HEADER = 0, DATA = 1, WRITE = 2, ANSWER = 3, READ = 4, FETCH = 5, SEND = 6;
  reg [2:0] state;
  reg [2:0] byte_index;
  reg [7:0] command, left;
  reg [29:0] address;
  reg [31:0] data;
  reg asked, given;  // the address of a write, its word
  reg [9:0] resetting;

  wire is_read = command == 8'd2;
  wire is_memory = !address[29];
  wire is_reset = address[29] && address[6];
  wire [31:0] word = {data[23:0], in_byte};
  wire ends_burst = left == 8'd1;
  // Which 32 bits of a word of the engine's port it is.
  localparam PART_BITS = PARTS > 1 ? $clog2(PARTS) : 1;
  localparam LAST = PARTS - 1;
  wire [PART_BITS-1:0] part = address[PART_BITS-1:0] & LAST[PART_BITS-1:0];
  wire completes = part == LAST[PART_BITS-1:0];
  wire take = in_valid && in_ready;
  assign in_ready = (state == HEADER || state == DATA) && resetting == 0;
  assign engine_rst = rst || resetting != 0;

  assign awvalid = state == WRITE && !is_memory && !is_reset;
  assign awaddr = {address[5:0], 2'b00};
  assign wdata = data;
  assign arvalid = state == READ && !is_memory;
  assign araddr = awaddr;
  assign mem_address = {address[29:SHIFT-2], {SHIFT{1'b0}}};
  assign mem_arvalid = state == READ && is_memory;
  assign mem_awvalid = state == WRITE && is_memory && !asked;
  assign mem_wvalid = state == WRITE && is_memory && !given;
  assign uses_memory = is_memory && (state == WRITE || state == ANSWER || state == READ || state == FETCH);
  assign out_valid = state == SEND;
  assign out_byte = data[31:24];
  wire writes_word = (awvalid && awready) || (state == WRITE && is_reset)
      || (state == WRITE && is_memory && (asked || mem_awready) && (given || mem_wready));
  wire answered = is_memory ? mem_bvalid : is_reset || bvalid;
  wire fetched = is_memory ? mem_rvalid : rvalid;

  always @(posedge clk) if (take && state == DATA) mem_wdata[32*part+:32] <= word;

  // After a word: the next one of the burst, or the next burst.
  task next_word;
    begin
      if (command != 8'd3) address <= address + 1'b1;
      left <= left - 1'b1;
      byte_index <= 0;
      state <= ends_burst ? HEADER : is_read ? READ : DATA;
    end
  endtask

  always @(posedge clk) begin
    if (take) data <= word;
    if (resetting != 0) resetting <= resetting - 1'b1;
    if (rst) begin
      state <= HEADER;
      byte_index <= 0;
      resetting <= 0;
      asked <= 0;
      given <= 0;
    end else begin
      case (state)
        HEADER: if (take) begin
          byte_index <= byte_index + 1'b1;
          if (byte_index == 0) command <= in_byte;
          if (byte_index == 1) left <= in_byte;
          if (byte_index == 5) begin
            address <= word[29:0];
            byte_index <= 0;
            state <= is_read ? READ : DATA;
          end
        end
        DATA: if (take) begin
          byte_index <= byte_index + 1'b1;
          if (byte_index == 3) begin
            if (is_memory && !completes) next_word;
            else state <= WRITE;
          end
        end
        WRITE: begin
          asked <= asked || mem_awready;
          given <= given || mem_wready;
          if (is_reset && data[0]) resetting <= 10'd512;
          if (writes_word) begin
            asked <= 0;
            given <= 0;
            state <= ANSWER;
          end
        end
        ANSWER: if (answered) next_word;
        READ: if (is_memory ? mem_arready : arready) state <= FETCH;
        FETCH: if (fetched) begin
          data <= is_memory ? mem_rdata[32*part+:32] : rdata;
          byte_index <= 0;
          state <= SEND;
        end
        default: if (out_ready) begin  // SEND
          data <= {data[23:0], 8'd0};
          byte_index <= byte_index + 1'b1;
          if (byte_index == 3) next_word;
        end
      endcase
    end
  end
endmodule

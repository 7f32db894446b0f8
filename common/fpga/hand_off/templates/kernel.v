// Generated: the whole engine (int8) as an RTL kernel for Vitis, controlled as ap_ctrl_hs says (UG1393, "RTL Kernels").
//
// Registers of s_axi_control: 0x00 bit 0 start, 1 done (until it is read), 2 idle, 3 ready; 0x10 and 0x14 address of the
// engine's memory; 0x1c and 0x20 address of the list; 0x28 how many entries the list has. A start resets the engine, for
// 512 cycles, because the descriptors of a list count from its begin on. Then the list is read entry by entry: 64 bits, the
// lower half a word of a descriptor, the upper half the engine's register that takes it (0x40, 0x44, 0x48). Done is when
// the list is over and the engine is idle. The engine's addresses are relative to its memory.
module ${name}_kernel (
    input ap_clk,
    input ap_rst_n,
    input s_axi_control_awvalid,
    output s_axi_control_awready,
    input [7:0] s_axi_control_awaddr,
    input s_axi_control_wvalid,
    output s_axi_control_wready,
    input [31:0] s_axi_control_wdata,
    input [3:0] s_axi_control_wstrb,
    output reg s_axi_control_bvalid,
    input s_axi_control_bready,
    output [1:0] s_axi_control_bresp,
    input s_axi_control_arvalid,
    output s_axi_control_arready,
    input [7:0] s_axi_control_araddr,
    output reg s_axi_control_rvalid,
    input s_axi_control_rready,
    output reg [31:0] s_axi_control_rdata,
    output [1:0] s_axi_control_rresp,
    output m_axi_memory_arvalid,
    input m_axi_memory_arready,
    output [63:0] m_axi_memory_araddr,
    output [7:0] m_axi_memory_arlen,
    output [2:0] m_axi_memory_arsize,
    output [1:0] m_axi_memory_arburst,
    input m_axi_memory_rvalid,
    output m_axi_memory_rready,
    input [$word_msb:0] m_axi_memory_rdata,
    input m_axi_memory_rlast,
    output m_axi_memory_awvalid,
    input m_axi_memory_awready,
    output [63:0] m_axi_memory_awaddr,
    output [7:0] m_axi_memory_awlen,
    output [2:0] m_axi_memory_awsize,
    output [1:0] m_axi_memory_awburst,
    output m_axi_memory_wvalid,
    input m_axi_memory_wready,
    output [$word_msb:0] m_axi_memory_wdata,
    output [$strobe_msb:0] m_axi_memory_wstrb,
    output m_axi_memory_wlast,
    input m_axi_memory_bvalid,
    output m_axi_memory_bready,
    output reg m_axi_list_arvalid,
    input m_axi_list_arready,
    output [63:0] m_axi_list_araddr,
    output [7:0] m_axi_list_arlen,
    output [2:0] m_axi_list_arsize,
    output [1:0] m_axi_list_arburst,
    input m_axi_list_rvalid,
    output m_axi_list_rready,
    input [63:0] m_axi_list_rdata,
    input m_axi_list_rlast
);
  // --- registers --------------------------------------------------------------------------------------------------------
  reg start, done, running;
  reg [63:0] memory, list;
  reg [31:0] count;
  wire write = s_axi_control_awvalid && s_axi_control_wvalid && !s_axi_control_bvalid;
  wire read = s_axi_control_arvalid && !s_axi_control_rvalid;
  assign s_axi_control_awready = write;
  assign s_axi_control_wready = write;
  assign s_axi_control_arready = read;
  assign s_axi_control_bresp = 0;
  assign s_axi_control_rresp = 0;
  wire over;
  reg [9:0] flushed = 0;
  wire rst = !flushed[9];  // of the engine, whose delays are flushed meanwhile
  wire begins = write && s_axi_control_awaddr == 0 && s_axi_control_wdata[0] && s_axi_control_wstrb[0] && !start;
  always @(posedge ap_clk)
    if (!ap_rst_n || begins) flushed <= 0;
    else if (rst) flushed <= flushed + 1;
  always @(posedge ap_clk) begin
    if (write) begin
      s_axi_control_bvalid <= 1;
      case (s_axi_control_awaddr)
        8'h00: start <= start || begins;
        8'h10: memory[31:0] <= s_axi_control_wdata;
        8'h14: memory[63:32] <= s_axi_control_wdata;
        8'h1c: list[31:0] <= s_axi_control_wdata;
        8'h20: list[63:32] <= s_axi_control_wdata;
        8'h28: count <= s_axi_control_wdata;
        default: ;
      endcase
    end else if (s_axi_control_bready) s_axi_control_bvalid <= 0;
    if (read) begin
      s_axi_control_rvalid <= 1;
      case (s_axi_control_araddr)
        8'h00: s_axi_control_rdata <= {28'b0, over, !running && !start, done || over, start};
        8'h10: s_axi_control_rdata <= memory[31:0];
        8'h14: s_axi_control_rdata <= memory[63:32];
        8'h1c: s_axi_control_rdata <= list[31:0];
        8'h20: s_axi_control_rdata <= list[63:32];
        8'h28: s_axi_control_rdata <= count;
        default: s_axi_control_rdata <= 0;
      endcase
    end else if (s_axi_control_rready) s_axi_control_rvalid <= 0;
    done <= (done && !(read && s_axi_control_araddr == 0)) || (over && !(read && s_axi_control_araddr == 0));
    if (start && !running && !rst) running <= 1;
    if (over) {start, running} <= 0;
    if (!ap_rst_n) begin
      {start, done, running, s_axi_control_bvalid, s_axi_control_rvalid} <= 0;
      {memory, list, count} <= 0;
    end
  end

  // --- the list: one entry after the other, into the engine's registers ---------------------------------------------------
  reg [31:0] asked, given;
  reg [3:0] quiet;  // cycles since the engine was busy: what was written last has begun by then
  reg entry_valid;
  reg [39:0] entry;
  wire accepted, response, busy;
  assign m_axi_list_araddr = list + {29'b0, asked, 3'b0};
  assign m_axi_list_arlen = 0;
  assign m_axi_list_arsize = 3;
  assign m_axi_list_arburst = 1;
  assign m_axi_list_rready = !entry_valid;
  assign over = running && given == count && !busy && quiet == 15;
  always @(posedge ap_clk) begin
    quiet <= busy || !running || given != count ? 0 : quiet == 15 ? 15 : quiet + 1;
    if (m_axi_list_arvalid && m_axi_list_arready) begin
      m_axi_list_arvalid <= 0;
      asked <= asked + 1;
    end else if (running && !m_axi_list_arvalid && asked == given && asked != count) m_axi_list_arvalid <= 1;
    if (m_axi_list_rvalid && m_axi_list_rready) begin
      entry <= m_axi_list_rdata[39:0];
      entry_valid <= 1;
    end
    if (accepted) begin
      entry_valid <= 0;
      given <= given + 1;
    end
    if (rst || !running) {asked, given, m_axi_list_arvalid, entry_valid} <= 0;
  end

  // --- the engine -------------------------------------------------------------------------------------------------------
  wire [31:0] araddr, awaddr;
  assign m_axi_memory_araddr = memory + {32'b0, araddr};
  assign m_axi_memory_awaddr = memory + {32'b0, awaddr};
  assign m_axi_memory_arsize = $size;
  assign m_axi_memory_awsize = $size;
  assign m_axi_memory_arburst = 1;
  assign m_axi_memory_awburst = 1;
  assign m_axi_memory_wstrb = {$strobes{1'b1}};
  wire word_ready, address_ready;
  assign accepted = entry_valid && address_ready;
  wire [31:0] status;
  wire status_valid, status_ready;
  $name engine (
      .clk(ap_clk), .rst(rst),
      .awvalid(entry_valid), .awready(address_ready), .awaddr(entry[39:32]),
      .wvalid(entry_valid), .wready(word_ready), .wdata(entry[31:0]), .bvalid(response), .bready(1'b1),
      .arvalid(1'b0), .arready(status_ready), .araddr(8'b0), .rvalid(status_valid), .rready(1'b1), .rdata(status),
      .mem_arvalid(m_axi_memory_arvalid), .mem_arready(m_axi_memory_arready), .mem_araddr(araddr),
      .mem_arlen(m_axi_memory_arlen), .mem_rvalid(m_axi_memory_rvalid), .mem_rready(m_axi_memory_rready),
      .mem_rdata(m_axi_memory_rdata), .mem_awvalid(m_axi_memory_awvalid), .mem_awready(m_axi_memory_awready),
      .mem_awaddr(awaddr), .mem_awlen(m_axi_memory_awlen), .mem_wvalid(m_axi_memory_wvalid),
      .mem_wready(m_axi_memory_wready), .mem_wdata(m_axi_memory_wdata), .mem_wlast(m_axi_memory_wlast),
      .mem_bvalid(m_axi_memory_bvalid), .mem_bready(m_axi_memory_bready), .busy(busy)
  );
  wire unused = &{1'b0, s_axi_control_wstrb[3:1], m_axi_memory_rlast, m_axi_list_rlast, m_axi_list_rdata[63:40], word_ready,
                  response, status, status_valid, status_ready};
endmodule


// The engine, and the bridge from a link to its registers and to its memory.
module $name (
    input clk,
    input rst,
    input in_valid,
    output in_ready,
    input [7:0] in_byte,
    output out_valid,
    input out_ready,
    output [7:0] out_byte,
    output mem_arvalid,
    input mem_arready,
    output [31:0] mem_araddr,
    output [7:0] mem_arlen,
    input mem_rvalid,
    output mem_rready,
    input [$msb:0] mem_rdata,
    output mem_awvalid,
    input mem_awready,
    output [31:0] mem_awaddr,
    output [7:0] mem_awlen,
    output mem_wvalid,
    input mem_wready,
    output [$msb:0] mem_wdata,
    output mem_wlast,
    input mem_bvalid,
    output mem_bready,
    output busy
);
  wire engine_rst, awvalid, awready, wready, bvalid, arvalid, arready, rvalid;
  wire [7:0] awaddr, araddr;
  wire [31:0] wdata, rdata;
  wire uses_memory, bridge_arvalid, bridge_awvalid, bridge_wvalid;
  wire engine_arvalid, engine_rready, engine_awvalid, engine_wvalid, engine_wlast, engine_bready;
  wire [31:0] bridge_address, engine_araddr, engine_awaddr;
  wire [7:0] engine_arlen, engine_awlen;
  wire [$msb:0] bridge_wdata, engine_wdata;
  engine_bridge #(.WORD($word_bytes)) bridge (
      .clk(clk), .rst(rst), .in_valid(in_valid), .in_ready(in_ready), .in_byte(in_byte),
      .out_valid(out_valid), .out_ready(out_ready), .out_byte(out_byte),
      .engine_rst(engine_rst), .awvalid(awvalid), .awready(awready), .awaddr(awaddr), .wdata(wdata), .bvalid(bvalid),
      .arvalid(arvalid), .arready(arready), .araddr(araddr), .rvalid(rvalid), .rdata(rdata),
      .uses_memory(uses_memory), .mem_arvalid(bridge_arvalid), .mem_arready(mem_arready), .mem_address(bridge_address),
      .mem_rvalid(mem_rvalid), .mem_rdata(mem_rdata), .mem_awvalid(bridge_awvalid), .mem_awready(mem_awready),
      .mem_wvalid(bridge_wvalid), .mem_wready(mem_wready), .mem_wdata(bridge_wdata), .mem_bvalid(mem_bvalid)
  );
  $engine engine (
      .clk(clk), .rst(engine_rst), .awvalid(awvalid), .awready(awready), .awaddr(awaddr), .wvalid(awvalid),
      .wready(wready), .wdata(wdata), .bvalid(bvalid), .bready(1'b1), .arvalid(arvalid), .arready(arready),
      .araddr(araddr), .rvalid(rvalid), .rready(1'b1), .rdata(rdata),
      .mem_arvalid(engine_arvalid), .mem_arready(mem_arready && !uses_memory), .mem_araddr(engine_araddr),
      .mem_arlen(engine_arlen), .mem_rvalid(mem_rvalid && !uses_memory), .mem_rready(engine_rready),
      .mem_rdata(mem_rdata), .mem_awvalid(engine_awvalid), .mem_awready(mem_awready && !uses_memory),
      .mem_awaddr(engine_awaddr), .mem_awlen(engine_awlen), .mem_wvalid(engine_wvalid),
      .mem_wready(mem_wready && !uses_memory), .mem_wdata(engine_wdata), .mem_wlast(engine_wlast),
      .mem_bvalid(mem_bvalid && !uses_memory), .mem_bready(engine_bready), .busy(busy)
  );
  assign mem_arvalid = uses_memory ? bridge_arvalid : engine_arvalid;
  assign mem_araddr = uses_memory ? bridge_address : engine_araddr;
  assign mem_arlen = uses_memory ? 8'd0 : engine_arlen;
  assign mem_rready = uses_memory || engine_rready;
  assign mem_awvalid = uses_memory ? bridge_awvalid : engine_awvalid;
  assign mem_awaddr = uses_memory ? bridge_address : engine_awaddr;
  assign mem_awlen = uses_memory ? 8'd0 : engine_awlen;
  assign mem_wvalid = uses_memory ? bridge_wvalid : engine_wvalid;
  assign mem_wdata = uses_memory ? bridge_wdata : engine_wdata;
  assign mem_wlast = uses_memory || engine_wlast;
  assign mem_bready = uses_memory || engine_bready;
  wire unused = &{1'b0, wready};
endmodule

// Reads of memory into the buffers: AXI4 bursts, of which several are under way at the same time. A load begins when as
// many calls of the array and as many stores are over as its descriptor says. What arrives goes to one buffer, word by
// word; a load of several rows leaves the gaps between them out.
module engine_load #(
    parameter WORD = 8,
    parameter BURST = 32,
    parameter LOG_UNDER_WAY = 3
) (
    input clk,
    input rst,
    input valid,
    input [6*32-1:0] descriptor,
    output take,
    input [15:0] computed,
    input [15:0] stored,
    output reg [15:0] loaded,
    output busy,
    // AXI4 read channels
    output arvalid,
    input arready,
    output [31:0] araddr,
    output [7:0] arlen,
    input rvalid,
    output rready,
    input [8*WORD-1:0] rdata,
    // Words for the buffers
    output reg write,
    output reg [2:0] target,
    output reg transposes,
    output reg [15:0] lane,
    output reg [15:0] address,
    output reg [8*WORD-1:0] word
);
  wire [15:0] since_computed = computed - descriptor[63:48];
  wire [15:0] since_stored = stored - descriptor[47:32];
  wire active, asked, is_final, under_way_full;
  wire [15:0] at, at_lane;
  reg [3:0] to;  // target, and whether it is transposed
  assign take = valid && !active && !since_computed[15] && !since_stored[15];
  always @(posedge clk) if (take) to <= descriptor[5:2];
  engine_bursts #(.WORD(WORD), .BURST(BURST)) bursts (
      .clk(clk), .rst(rst), .take(take), .descriptor(descriptor), .active(active), .may_ask(!under_way_full),
      .valid(arvalid), .ready(arready), .address(araddr), .length(arlen), .asked(asked), .at(at), .lane(at_lane),
      .is_final(is_final)
  );

  // Bursts under way, the oldest of which arrives.
  wire [3:0] arriving_to;
  wire [15:0] arriving_at, arriving_lane;
  wire [7:0] arriving_length;
  wire arriving_final, none_under_way;
  reg [7:0] arrived;
  wire ends_burst = rvalid && arrived == arriving_length;
  assign rready = 1'b1;
  assign busy = active || !none_under_way;
  engine_fifo #(.WIDTH(45), .LOG_DEPTH(LOG_UNDER_WAY)) under_way (
      .clk(clk), .rst(rst), .push(asked), .in({is_final, to, at_lane, at, arlen}), .pop(ends_burst),
      .out({arriving_final, arriving_to, arriving_lane, arriving_at, arriving_length}), .empty(none_under_way),
      .full(under_way_full)
  );
  reg ends_load;
  always @(posedge clk) begin
    write <= rvalid && !rst;
    {transposes, target} <= arriving_to;
    lane <= arriving_lane;
    address <= arriving_at + {8'b0, arrived};
    word <= rdata;
    ends_load <= ends_burst && arriving_final && !rst;
    if (rst) begin
      arrived <= 0;
      loaded <= 0;
    end else begin
      if (rvalid) arrived <= ends_burst ? 8'd0 : arrived + 1'b1;
      if (ends_load) loaded <= loaded + 1'b1;
    end
  end
  wire unused = &{1'b0, since_computed[14:0], since_stored[14:0], descriptor[31:6], descriptor[1:0]};
endmodule

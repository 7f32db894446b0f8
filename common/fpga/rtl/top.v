// Generated: one array of fixed size. The ports are those of systolic_array, see array.v.
module $name (
    input clk,
    input rst,
    input start,
    input [$count_msb:0] k_count,
    input [$count_msb:0] fold_count,
    input [$a_msb:0] a,
    input [$b_msb:0] b,
    output feed,
    output [$valid_msb:0] result_valid,
    output [$result_msb:0] result
);
  systolic_array #(
      $parameters, .COUNT_WIDTH($count_width)
  ) array (
      .clk(clk), .rst(rst), .start(start), .k_count(k_count), .fold_count(fold_count), .a(a), .b(b),
      .feed(feed), .result_valid(result_valid), .result(result)
  );
endmodule

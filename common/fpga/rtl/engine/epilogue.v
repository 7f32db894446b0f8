// One lane behind the sums: y = clip(round(round'(sum + bias) * scale) + zero), rounded to the nearest integer, ties to
// even, as QuantizeLinear does. The factor is exact: 24 bits of mantissa, and a shift. So the product is exact, and it is
// rounded once. With a residual, both operands are scaled again, added exactly, rounded once and clipped. Or the residual
// is a factor: the exact product of both is scaled by a factor of 17 bits, rounded once and clipped.
//
// A result is there 16 cycles after its sum.
module engine_lane #(
    parameter SUM = 32,
    parameter PRODUCTS = 1  // 0: a residual is added only
) (
    input clk,
    input [SUM-1:0] sum,
    // Of the channel, with the sum
    input [31:0] bias,
    input [23:0] factor,
    input [5:0] shift,       // less one
    // Of the call, each so many cycles behind the sum
    input [7:0] zero,                              // 8
    input [7:0] low, high,                         // 9
    input [7:0] own_zero, residual, residual_zero,  // 10
    input [24:0] own_factor, residual_factor,      // 11
    input multiplies,                              // 11
    input [5:0] residual_shift,                    // 13; less one
    input adds_residual,                           // 15
    input [7:0] last_zero, last_low, last_high,    // 15
    output reg [7:0] y
);
  // 1: bias. 2: operands of the product, in parts that fit small multipliers. 3: partial products. 4, 5: their sum.
  reg signed [31:0] biased;
  reg [23:0] factor_1, factor_2;
  reg [5:0] shift_1, shift_2, shift_3, shift_4, shift_5, shift_6;
  reg signed [15:0] upper;
  reg signed [16:0] lower;
  reg signed [28:0] upper_upper, upper_lower;
  reg signed [29:0] lower_upper, lower_lower;
  reg signed [41:0] of_upper;
  reg signed [42:0] of_lower;
  reg signed [57:0] full;
  wire signed [12:0] factor_upper = {1'b0, factor_2[23:12]};
  wire signed [12:0] factor_lower = {1'b0, factor_2[11:0]};
  wire signed [41:0] upper_shifted = {{1{upper_upper[28]}}, upper_upper, 12'b0};
  wire signed [42:0] lower_shifted = {{1{lower_upper[29]}}, lower_upper, 12'b0};
  wire signed [57:0] of_upper_shifted = {of_upper, 16'b0};
  always @(posedge clk) begin
    biased <= sum + bias;
    factor_1 <= factor;
    shift_1 <= shift;

    upper <= biased[31:16];
    lower <= {1'b0, biased[15:0]};
    factor_2 <= factor_1;
    shift_2 <= shift_1;

    upper_upper <= upper * factor_upper;
    upper_lower <= upper * factor_lower;
    lower_upper <= lower * factor_upper;
    lower_lower <= lower * factor_lower;
    shift_3 <= shift_2;

    of_upper <= upper_shifted + {{13{upper_lower[28]}}, upper_lower};
    of_lower <= lower_shifted + {{13{lower_lower[29]}}, lower_lower};
    shift_4 <= shift_3;

    full <= of_upper_shifted + {{15{of_lower[42]}}, of_lower};
    shift_5 <= shift_4;
  end

  // 6, 7: to the right by `shift` less one, so that one bit of the fraction is left; what fell out counts as not zero.
  wire signed [57:0] coarse;
  wire signed [57:0] fine;
  reg signed [57:0] shifted_coarse;
  reg signed [12:0] kept;
  reg lost_coarse, lost;
  wire [57:0] mask_coarse = ~({58{1'b1}} << {shift_5[5:3], 3'b000});
  wire [57:0] mask_fine = ~({58{1'b1}} << shift_6[2:0]);
  assign coarse = full >>> {shift_5[5:3], 3'b000};
  assign fine = shifted_coarse >>> shift_6[2:0];
  wire above = !fine[57] && |fine[56:12];
  wire below = fine[57] && !(&fine[56:12]);
  always @(posedge clk) begin
    shifted_coarse <= coarse;
    lost_coarse <= |(full & mask_coarse);
    shift_6 <= shift_5;

    // Far outside of a byte, where the rounding no longer counts, it is the largest or the smallest number.
    kept <= above ? 13'sd4095 : below ? -13'sd4096 : fine[12:0];
    lost <= lost_coarse || |(shifted_coarse & mask_fine);
  end

  // 8: rounding. 9: zero point. 10: clipping.
  wire [12:0] rounding = {12'b0, kept[0] && (lost || kept[1])};
  wire signed [11:0] halved = kept[12:1];
  reg signed [11:0] rounded;
  reg signed [12:0] moved;
  reg signed [7:0] own;
  wire signed [12:0] zero_signed = {{5{zero[7]}}, zero}, low_signed = {{5{low[7]}}, low};
  wire signed [12:0] high_signed = {{5{high[7]}}, high};
  wire [12:0] clipped = moved < low_signed ? low_signed : moved > high_signed ? high_signed : moved;
  always @(posedge clk) begin
    rounded <= halved == 12'sd2047 ? halved : halved + rounding[11:0];
    moved <= {rounded[11], rounded} + zero_signed;
    own <= clipped[7:0];
  end

  // 11 to 16: the residual.
  reg signed [8:0] own_part, residual_part;
  reg signed [33:0] own_product, residual_product;
  reg signed [34:0] added;
  reg signed [12:0] added_kept;
  reg added_lost;
  reg signed [11:0] added_rounded;
  reg signed [7:0] own_1, own_2, own_3, own_4, own_5;
  wire signed [25:0] own_scale = {1'b0, own_factor}, residual_scale = {1'b0, residual_factor};
  wire signed [34:0] added_shifted = added >>> residual_shift;
  wire [34:0] added_mask = ~({35{1'b1}} << residual_shift);
  wire added_above = !added_shifted[34] && |added_shifted[33:12];
  wire added_below = added_shifted[34] && !(&added_shifted[33:12]);
  wire signed [11:0] added_halved = added_kept[12:1];
  wire [11:0] added_rounding = {11'b0, added_kept[0] && (added_lost || added_kept[1])};
  wire signed [12:0] last_zero_signed = {{5{last_zero[7]}}, last_zero}, last_low_signed = {{5{last_low[7]}}, last_low};
  wire signed [12:0] last_high_signed = {{5{last_high[7]}}, last_high};
  wire signed [12:0] last_moved = {added_rounded[11], added_rounded} + last_zero_signed;
  wire [12:0] last_clipped = last_moved < last_low_signed ? last_low_signed
      : last_moved > last_high_signed ? last_high_signed : last_moved;
  wire signed [33:0] own_scaled = own_part * own_scale, own_both = own_part * residual_part;
  reg multiplied;
  reg [16:0] product_scale;
  wire signed [17:0] of_both_1 = own_product[17:0], product_factor = {1'b0, product_scale};
  wire signed [34:0] scaled_product = of_both_1 * product_factor;  // 255 * 255 * 2^17 has 34 bits
  always @(posedge clk) begin
    own_part <= {own[7], own} - {own_zero[7], own_zero};
    residual_part <= {residual[7], residual} - {residual_zero[7], residual_zero};
    own_1 <= own;

    own_product <= PRODUCTS != 0 && multiplies ? own_both : own_scaled;
    residual_product <= residual_part * residual_scale;
    multiplied <= multiplies;
    product_scale <= residual_factor[16:0];
    own_2 <= own_1;

    added <= PRODUCTS != 0 && multiplied ? scaled_product
        : {own_product[33], own_product} + {residual_product[33], residual_product};
    own_3 <= own_2;

    added_kept <= added_above ? 13'sd4095 : added_below ? -13'sd4096 : added_shifted[12:0];
    added_lost <= |(added & added_mask);
    own_4 <= own_3;

    added_rounded <= added_halved == 12'sd2047 ? added_halved : added_halved + added_rounding;
    own_5 <= own_4;

    y <= adds_residual ? last_clipped[7:0] : own_5;
  end
  wire unused = &{1'b0, shift_6[5:3], rounding[12], clipped[12:8], last_clipped[12:8]};
endmodule

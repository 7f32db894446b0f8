# Generated: package the engine as an RTL kernel. vivado -mode batch -source rtl/package_kernel.tcl -tclargs PART
# The commands are those of Xilinx's example (Vitis_Accel_Examples, rtl_kernels/rtl_vadd/scripts/package_kernel.tcl). The
# kernel's registers are those that rtl/$name.v states; connectivity.cfg does not have it.
set part [lindex $$argv 0]
set root [file normalize [file dirname [info script]]/..]
create_project -force package $$root/build/package -part $$part
add_files -norecurse $$root/rtl/$name.v
set_property top ${name}_kernel [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir $$root/build/ip -vendor plan -library kernel -taxonomy /KernelIP -import_files -force
set core [ipx::current_core]
foreach bus {s_axi_control m_axi_memory m_axi_list} {
    ipx::associate_bus_interfaces -busif $$bus -clock ap_clk $$core
}
set rate [ipx::add_bus_parameter -quiet FREQ_HZ [ipx::get_bus_interfaces -of $$core ap_clk]]
set_property value $hertz $$rate
set_property value_resolve_type user $$rate
set map [ipx::add_memory_map -quiet s_axi_control $$core]
set block [ipx::add_address_block -quiet reg0 $$map]
foreach {register offset bits} {CTRL 0x00 32 memory 0x10 64 list 0x1c 64 count 0x28 32} {
    set added [ipx::add_register -quiet $$register $$block]
    set_property address_offset $$offset $$added
    set_property size $$bits $$added
    if {$$bits == 64} {
        set_property value m_axi_$$register [ipx::add_register_parameter -quiet ASSOCIATED_BUSIF $$added]
    }
}
set_property slave_memory_map_ref s_axi_control [ipx::get_bus_interfaces -of $$core s_axi_control]
set_property sdx_kernel true $$core
set_property sdx_kernel_type rtl $$core
set_property supported_families {} $$core
set_property auto_family_support_level level_2 $$core
ipx::create_xgui_files $$core
ipx::update_checksums $$core
ipx::check_integrity -kernel $$core
ipx::save_core $$core
close_project -delete
package_xo -force -xo_path $$root/build/${name}.xo -kernel_name ${name}_kernel -ip_directory $$root/build/ip -ctrl_protocol ap_ctrl_hs

# Generated: package the engine as an RTL kernel. vivado -mode batch -source rtl/package_kernel.tcl -tclargs PART
# The kernel's registers are those that rtl/$name.v states; connectivity.cfg does not have it.
set part [lindex $$argv 0]
set root [file normalize [file dirname [info script]]/..]
create_project -force package $$root/build/package -part $$part
add_files -norecurse $$root/rtl/$name.v
set_property top ${name}_kernel [current_fileset]
update_compile_order -fileset sources_1
ipx::package_project -root_dir $$root/build/ip -vendor plan -library kernel -taxonomy /KernelIP -import_files -force
set core [ipx::current_core]
set_property sdx_kernel true $$core
set_property sdx_kernel_type rtl $$core
foreach bus {s_axi_control m_axi_memory m_axi_list} {
    ipx::associate_bus_interfaces -busif $$bus -clock ap_clk $$core
}
set map [ipx::add_address_block reg0 [ipx::get_memory_maps s_axi_control -of_objects $$core]]
foreach {register offset bits} {CTRL 0x00 32 memory 0x10 64 list 0x1c 64 count 0x28 32} {
    set added [ipx::add_register $$register $$map]
    set_property address_offset $$offset $$added
    set_property size $$bits $$added
}
foreach {register bus} {memory m_axi_memory list m_axi_list} {
    set of_register [ipx::get_registers $$register -of_objects $$map]
    set_property value $$bus [ipx::add_register_parameter ASSOCIATED_BUSIF $$of_register]
}
ipx::create_xgui_files $$core
ipx::update_checksums $$core
ipx::check_integrity -kernel -xrt $$core
ipx::save_core $$core
package_xo -force -xo_path $$root/build/${name}.xo -kernel_name ${name}_kernel -ip_directory $$root/build/ip -ctrl_protocol ap_ctrl_hs

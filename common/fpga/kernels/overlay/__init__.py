"""A vendor's programmable engine, such as a DPU."""

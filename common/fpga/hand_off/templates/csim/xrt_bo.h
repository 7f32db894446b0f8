// All of it is in one file.
#pragma once
#include "xrt_kernel.h"

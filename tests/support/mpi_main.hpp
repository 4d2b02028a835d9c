#pragma once
// The world of a test program whose ranks are processes (mpi_main.cpp).

#include "runtime/comm/mpi/mpi_world.hpp"

namespace mgplan::tests {

/// This process's rank among those that mpirun started. From main on.
[[nodiscard]] runtime::MpiWorld& the_world();

}  // namespace mgplan::tests

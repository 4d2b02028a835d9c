#pragma once
// What gpu_all holds beside its tests. Words are those behind the program's name; exit codes: 0 done, 1 something is wrong, 2 usage. They
// throw runtime::CudaUnavailable where there is no GPU, RunError where the card fails.

#include <string>
#include <vector>

namespace mgplan::tests {

int run_gpu_bench(const std::vector<std::string>& words);
int run_gpu_nccl(const std::vector<std::string>& words);

}  // namespace mgplan::tests

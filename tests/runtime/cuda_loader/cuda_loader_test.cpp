// Programs start without a GPU and say in one sentence why they cannot use one.

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda_loader/cuda_loader.hpp"

namespace mgplan::runtime::cuda_loader_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string complaint(const std::function<void()>& work) {
    try {
        work();
    } catch (const CudaUnavailable& error) {
        return error.what();
    }
    return {};
}

TEST(CudaLoader, NamesTheModuleThatIsMissing) {
    ASSERT_EQ(setenv("MGPLAN_CUDA_MODULE", "/nowhere/libmgplan_cuda.so", 1), 0);
    EXPECT_THAT(complaint([] { (void)cuda_module(); }), AllOf(HasSubstr("no CUDA module (/nowhere/libmgplan_cuda.so is not there)"),
                                                              HasSubstr("use the CPU"), Not(HasSubstr("\n"))));
    ASSERT_EQ(unsetenv("MGPLAN_CUDA_MODULE"), 0);
}

TEST(CudaLoader, PassesOnWhyAFileCannotBeLoaded) {
    EXPECT_THAT(complaint([] { (void)load_cuda_module("/proc/self/exe/none.so"); }),
                AllOf(HasSubstr("/proc/self/exe/none.so cannot be loaded ("), HasSubstr("LD_LIBRARY_PATH")));
}

TEST(CudaLoader, RefusesALibraryThatIsNoModule) {
    EXPECT_THAT(complaint([] { (void)load_cuda_module("libm.so.6"); }), HasSubstr("is of another build than this program"));
}

TEST(CudaLoader, AsksCudaForAsManyQueuesAsThereAreUnlessTheUserDid) {
    const std::string variable = "CUDA_DEVICE_MAX_CONNECTIONS";
    for (const char* set : {"", "1"}) {
        ASSERT_EQ(*set == '\0' ? unsetenv(variable.c_str()) : setenv(variable.c_str(), set, 1), 0);
        static_cast<void>(complaint([] { (void)load_cuda_module("libm.so.6"); }));
        EXPECT_STREQ(std::getenv(variable.c_str()), *set == '\0' ? "32" : "1");
    }
    ASSERT_EQ(unsetenv(variable.c_str()), 0);
}

#ifdef MGPLAN_CUDA_MODULE_FILE
bool mapped(const std::string& library) {
    std::ifstream maps("/proc/self/maps");
    const std::string text{std::istreambuf_iterator<char>(maps), {}};
    return text.find(library) != std::string::npos;
}

// Before the tests below, which ask for their versions.
TEST(CudaLoader, OpensCudnnAndNcclWhenTheyAreFirstNeeded) {
    CudaModule& module = load_cuda_module(MGPLAN_CUDA_MODULE_FILE);
    EXPECT_TRUE(mapped("/libcublasLt.so"));
    EXPECT_FALSE(mapped("/libcudnn.so"));
    EXPECT_FALSE(mapped("/libnccl.so"));
    const CudaVersions versions = module.versions();
    EXPECT_EQ(mapped("/libcudnn.so"), !versions.cudnn.empty());
    EXPECT_EQ(mapped("/libnccl.so"), !versions.nccl.empty());
    EXPECT_NE(versions.cublas_lt, "");
    if (std::getenv("MGPLAN_TEST_HIDES_LIBRARIES") != nullptr) {
        EXPECT_EQ(versions.cudnn, "");
        EXPECT_EQ(versions.nccl, "");
    }
}

TEST(CudaLoader, LoadsTheModuleWhereThereIsNoGpuAndHearsWhy) {
    CudaModule& module = load_cuda_module(MGPLAN_CUDA_MODULE_FILE);
    EXPECT_THAT(module.versions().runtime, HasSubstr("."));
    EXPECT_THAT(module.versions().cublas_lt, HasSubstr("."));
    const std::string why = module.unavailable();
    if (why.empty()) {
        EXPECT_FALSE(module.cards().empty());
        return;
    }
    EXPECT_THAT(why, AllOf(HasSubstr("use the CPU"), Not(HasSubstr("\n"))));
    // Thrown in the module, caught by its type here.
    EXPECT_THROW((void)module.make_device(0, 3), RunError);
    ASSERT_EQ(setenv("MGPLAN_CUDA_MODULE", MGPLAN_CUDA_MODULE_FILE, 1), 0);
    EXPECT_EQ(complaint([] { (void)cuda_module(); }), why);
    ASSERT_EQ(unsetenv("MGPLAN_CUDA_MODULE"), 0);
}

TEST(CudaLoader, FindsTheModulesErrorsByTheirType) {
    CudaModule& module = load_cuda_module(MGPLAN_CUDA_MODULE_FILE);
    if (module.unavailable().empty()) GTEST_SKIP() << "there is a GPU, so nothing fails";
    try {
        (void)module.cards();
        FAIL() << "counted cards";
    } catch (const RunError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("cudaGetDeviceCount"), HasSubstr("runtime/cuda_module/module.cpp:")));
    }
}
#endif

}  // namespace
}  // namespace mgplan::runtime::cuda_loader_test

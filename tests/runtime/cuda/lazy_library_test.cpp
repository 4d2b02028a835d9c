// The libraries that the CUDA module can do without: opened late, and missed in words.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/lazy_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LazyLibrary, FindsFunctionsOfALibraryThatIsThere) {
    LazyLibrary library("the mathematics library", "libm.so.6");
    const auto root = reinterpret_cast<double (*)(double)>(library.find("sqrt"));
    ASSERT_NE(root, nullptr);
    EXPECT_EQ(root(9), 3);
    EXPECT_EQ(library.unavailable(), "");
}

TEST(LazyLibrary, NamesTheFileThatIsMissing) {
    LazyLibrary library("NCCL", "libnccl-of-no-machine.so.2");
    EXPECT_EQ(library.find("ncclGetVersion"), nullptr);
    EXPECT_THAT(library.unavailable(), StartsWith("NCCL cannot be loaded ("));
    EXPECT_THAT(library.unavailable(), HasSubstr("libnccl-of-no-machine.so.2"));
}

TEST(LazyLibrary, NamesTheFirstFunctionThatIsMissing) {
    LazyLibrary library("NCCL", "libm.so.6");
    EXPECT_EQ(library.find("ncclCommSplit"), nullptr);
    EXPECT_EQ(library.find("ncclSend"), nullptr);
    EXPECT_NE(library.find("sqrt"), nullptr);
    EXPECT_EQ(library.unavailable(), "the NCCL in libm.so.6 is too old: it has no ncclCommSplit");
}

}  // namespace
}  // namespace mgplan::runtime::cuda

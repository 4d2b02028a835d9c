// The libraries that the CUDA module can do without: opened late, and missed in words.

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cuda/lazy_library.hpp"

extern "C" int mgplan_function_of_no_library();

namespace mgplan::runtime::cuda::lazy_library_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

#define MGPLAN_TEST_FUNCTIONS(each) each(getpid) each(getppid)
#define MGPLAN_TEST_MAJOR 6
MGPLAN_LIBRARY_FUNCTIONS(ProcessFunctions, MGPLAN_TEST_FUNCTIONS);

#define MGPLAN_TEST_ABSENT(each) each(getpid) each(mgplan_function_of_no_library)
MGPLAN_LIBRARY_FUNCTIONS(AbsentFunctions, MGPLAN_TEST_ABSENT);

TEST(LibraryFunctions, AreTheLibrarysByTheirNames) {
    const LibraryFunctions<ProcessFunctions> library("the C library", MGPLAN_LIBRARY_FILE("c", MGPLAN_TEST_MAJOR));
    EXPECT_EQ(library.unavailable(), "");
    EXPECT_EQ(library.functions().getpid(), getpid());
    EXPECT_EQ(library.functions().getppid(), getppid());
}

TEST(LibraryFunctions, OfNoLibrarySayWhatIsMissing) {
    const LibraryFunctions<ProcessFunctions> absent("NCCL", "libnccl-of-no-machine.so.2");
    EXPECT_THAT(absent.unavailable(), StartsWith("NCCL cannot be loaded ("));
    const LibraryFunctions<AbsentFunctions> old("NCCL", "libc.so.6");
    EXPECT_EQ(old.unavailable(), "the NCCL in libc.so.6 is too old: it has no mgplan_function_of_no_library");
}

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
}  // namespace mgplan::runtime::cuda::lazy_library_test

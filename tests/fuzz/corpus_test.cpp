// The corpus that fuzzing left (tests/fuzz/run), and the files of the tree that more_inputs names: every input is taken or refused in
// words, on every run of the tests.

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "readers.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::fuzz::corpus_test {
namespace {

namespace fs = std::filesystem;

/// The reader's folders of inputs.
std::vector<fs::path> folders_of(const Reader& reader) {
    const fs::path tests = mgplan::tests::data_folder();
    std::vector<fs::path> folders{tests / "fuzz/corpus" / reader.name};
    std::ifstream more(tests / "fuzz/more_inputs");
    for (std::string name, folder; more >> name >> folder;) {
        if (name == reader.name) folders.push_back(tests.parent_path() / folder);
    }
    return folders;
}

class Corpus : public ::testing::TestWithParam<Reader> {};

TEST_P(Corpus, IsTakenOrRefusedInWords) {
    const Reader reader = GetParam();
    int taken = 0;
    int refused = 0;
    for (const fs::path& folder : folders_of(reader)) {
        for (const auto& entry : fs::directory_iterator(folder)) {
            std::ifstream file(entry.path(), std::ios::binary);
            const std::string bytes{std::istreambuf_iterator<char>(file), {}};
            EXPECT_FALSE(bytes.starts_with("../")) << entry.path() << " was a link; name its folder in more_inputs";
            EXPECT_NO_THROW((takes(reader, bytes) ? taken : refused)++) << entry.path();
        }
    }
    EXPECT_GT(taken, 0) << "the corpus holds no input that is taken";
    EXPECT_GT(refused, 0) << "the corpus holds no input that is refused";
}

INSTANTIATE_TEST_SUITE_P(Of, Corpus, ::testing::ValuesIn(readers().begin(), readers().end()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Fuzzing, NoticesBrokenPromises) {
    EXPECT_THROW(takes({"other", [](std::string_view) { throw std::out_of_range("at"); }}, ""), std::logic_error);
    EXPECT_THROW(takes({"runtime", [](std::string_view) { throw std::runtime_error("oh"); }}, ""), std::logic_error);
    EXPECT_THROW(takes({"silent", [](std::string_view) { throw ConfigError(""); }}, ""), std::logic_error);
    EXPECT_THROW(takes({"loud", [](std::string_view) { throw ConfigError(std::string(2U << 20U, 'x')); }}, ""), std::logic_error);
    EXPECT_FALSE(takes({"refuses", [](std::string_view) { throw ConfigError("no"); }}, ""));
    EXPECT_TRUE(takes({"takes", [](std::string_view) {}}, ""));
}

}  // namespace
}  // namespace mgplan::fuzz::corpus_test

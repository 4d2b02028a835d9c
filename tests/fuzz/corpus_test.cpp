// The corpus that fuzzing left (tests/fuzz/run, one packed file for each reader), and the files of the tree that more_inputs names: every
// input is taken or refused in words, on every run of the tests.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "plan/text/errors.hpp"
#include "readers.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::fuzz::corpus_test {
namespace {

namespace fs = std::filesystem;

struct Input {
    std::string name, bytes;
};

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string from_digits(std::string_view text) {
    std::string digits(text), bytes;
    std::erase(digits, '\n');
    for (std::size_t at = 0; at + 1 < digits.size(); at += 2) bytes += static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16));
    return bytes;
}

/// The inputs of a packed file, as tests/fuzz/corpus.py unpacks them.
std::vector<Input> unpacked(const fs::path& path) {
    constexpr std::string_view kMark = "\n=== ", kHex = " hex";
    const std::string text = "\n" + bytes_of(path);
    std::vector<Input> inputs;
    for (std::size_t at = text.find(kMark); at != std::string::npos;) {
        const std::size_t name_at = at + kMark.size(), line_end = std::min(text.find('\n', name_at), text.size());
        at = text.find(kMark, line_end);
        std::string name = text.substr(name_at, line_end - name_at);
        const std::size_t begin = std::min(line_end + 1, text.size());
        // The line end that the packing added stands in front of the next heading, or at the end.
        std::string content =
            at != std::string::npos ? text.substr(begin, std::max(at, begin) - begin) : text.substr(begin, text.size() - begin - 1);
        if (name.ends_with(kHex)) {
            name.resize(name.size() - kHex.size());
            content = from_digits(content);
        }
        inputs.push_back({std::move(name), std::move(content)});
    }
    return inputs;
}

/// The reader's inputs, and the files of the folders that more_inputs names for it.
std::vector<Input> inputs_of(const Reader& reader) {
    const fs::path tests = mgplan::tests::data_folder();
    std::vector<Input> inputs = unpacked(tests / "fuzz/corpus" / reader.name);
    std::ifstream more(tests / "fuzz/more_inputs");
    for (std::string name, folder; more >> name >> folder;) {
        if (name != reader.name) continue;
        for (const auto& entry : fs::directory_iterator(tests.parent_path() / folder))
            inputs.push_back({entry.path().string(), bytes_of(entry.path())});
    }
    return inputs;
}

class Corpus : public ::testing::TestWithParam<Reader> {};

TEST_P(Corpus, IsTakenOrRefusedInWords) {
    const Reader reader = GetParam();
    int taken = 0;
    int refused = 0;
    for (const Input& input : inputs_of(reader)) {
        EXPECT_FALSE(input.bytes.starts_with("../")) << input.name << " was a link; name its folder in more_inputs";
        EXPECT_NO_THROW((takes(reader, input.bytes) ? taken : refused)++) << input.name;
    }
    EXPECT_GT(taken, 0) << "the corpus holds no input that is taken";
    EXPECT_GT(refused, 0) << "the corpus holds no input that is refused";
}

INSTANTIATE_TEST_SUITE_P(Of, Corpus, ::testing::ValuesIn(readers().begin(), readers().end()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Fuzzing, UnpacksInputsByteForByte) {
    const fs::path path = fs::path(::testing::TempDir()) / "packed_inputs";
    std::ofstream(path, std::ios::binary) << "=== empty\n\n=== line\nwith its end\n\n=== open\nno end\n=== digits hex\n00ff\n0a\n";
    const std::vector<Input> inputs = unpacked(path);
    ASSERT_EQ(inputs.size(), 4);
    EXPECT_EQ(inputs[0].bytes, "");
    EXPECT_EQ(inputs[1].bytes, "with its end\n");
    EXPECT_EQ(inputs[2].bytes, "no end");
    EXPECT_EQ(inputs[3].bytes, std::string("\0\xff\n", 3));
    EXPECT_EQ(inputs[3].name, "digits");
}

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

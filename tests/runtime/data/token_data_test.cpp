#include <cstdio>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "plan/text/errors.hpp"
#include "runtime/data/indexed_dataset.hpp"
#include "runtime/data/synthetic_stream.hpp"
#include "runtime/data/token_data.hpp"
#include "tests/support/indexed_dataset_writer.hpp"

namespace mgplan::runtime::token_data_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tests::IndexedFiles;

/// Paths under one name of this test run alone.
class Data : public testing::Test {
protected:
    ~Data() override {
        for (const char* end : {"", ".bin", ".idx"}) std::remove((path + end).c_str());
    }
    std::string path = testing::TempDir() + "mgplan_data_" + std::to_string(::getpid());

    [[nodiscard]] std::string refusal(const std::string& name, std::int64_t vocab = 1000) const {
        try {
            (void)open_token_data(name, vocab);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "accepted";
    }
    template <class Id>
    [[nodiscard]] std::string refusal_of(const IndexedFiles<Id>& files) const {
        files.write(path);
        return refusal(path);
    }
};

std::vector<std::int32_t> all_of(const TokenData& data) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(data.tokens().value()));
    data.read(0, tokens);
    return tokens;
}

TEST_F(Data, BytesOfATextAreItsTokens) {
    tests::write_file(path, std::string("a\0\xff z", 5));
    const auto data = open_token_data(path, 256);
    EXPECT_EQ(all_of(*data), (std::vector<std::int32_t>{97, 0, 255, 32, 122}));
    std::vector<std::int32_t> part(2);
    data->read(3, part);
    EXPECT_EQ(part, (std::vector<std::int32_t>{32, 122}));
    EXPECT_THAT(refusal(path, 255), AllOf(HasSubstr(path), HasSubstr("vocabulary of 255")));
}

TEST_F(Data, EveryTypeOfIdIsRead) {
    const std::vector<std::int32_t> wanted{1, 2, 3, 100, 5};
    const auto expect_read = [&](const auto& files) {
        files.write(path);
        for (const char* end : {"", ".bin", ".idx"}) EXPECT_EQ(all_of(*open_token_data(path + end, 1000)), wanted) << int{files.code};
    };
    expect_read(IndexedFiles<std::uint8_t>{1, {{1, 2}, {3, 100, 5}}, {}});
    expect_read(IndexedFiles<std::int8_t>{2, {{1, 2}, {3, 100, 5}}, {}});
    expect_read(IndexedFiles<std::int16_t>{3, {{1, 2}, {3, 100, 5}}, {}});
    expect_read(IndexedFiles<std::int32_t>{4, {{1, 2}, {}, {3, 100, 5}}, {}});
    expect_read(IndexedFiles<std::int64_t>{5, {{1}, {2, 3, 100, 5}}, {0, 2}});
    expect_read(IndexedFiles<std::uint16_t>{8, {{1, 2, 3, 100, 5}}, {}});
}

TEST_F(Data, SequencesWithHolesBetweenThemAreOneRowOfTokens) {
    const IndexedFiles<std::int32_t> files{4, {{}, {1, 2, 3}, {4}, {}, {5, 6}}, {}, 12};
    files.write(path);
    const auto data = open_token_data(path, 1000);
    EXPECT_EQ(all_of(*data), (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
    for (std::int64_t first = 0; first < 6; ++first) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(6 - first));
        data->read(first, tokens);
        for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], first + static_cast<std::int64_t>(i) + 1);
    }
}

TEST_F(Data, AnIdOutsideTheVocabularyIsNamedWithItsPlace) {
    const IndexedFiles<std::int32_t> files{4, {{1, 2}, {3, 70000, -5}}, {}};
    files.write(path);
    const auto data = open_token_data(path, 32000);
    std::vector<std::int32_t> three(3), four(4), last(1);
    EXPECT_NO_THROW(data->read(0, three));
    try {
        data->read(0, four);
        FAIL();
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr(path + ".bin"), HasSubstr("token 3 is 70000"), HasSubstr("vocabulary of 32000")));
    }
    EXPECT_THROW(data->read(4, last), ConfigError);
}

TEST_F(Data, BrokenFilesAreRefusedWithOneMessage) {
    const IndexedFiles<std::int32_t> good{4, {{1, 2}, {3, 4, 5}}, {}};
    const std::string index = good.index();
    const auto with = [&](std::size_t at, auto value) {
        good.write(path);
        std::string changed = index;
        changed.replace(at, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
        tests::write_file(path + ".idx", changed);
        return refusal(path);
    };
    EXPECT_THAT(with(0, 'X'), HasSubstr("does not begin with MMIDIDX"));
    EXPECT_THAT(with(9, std::uint64_t{2}), HasSubstr("version 2 cannot be read"));
    EXPECT_THAT(with(17, std::uint8_t{9}), HasSubstr("type code 9"));
    EXPECT_THAT(with(17, std::uint8_t{0}), HasSubstr("type code 0"));
    EXPECT_THAT(with(17, std::uint8_t{7}), HasSubstr("type float32, and token ids are whole numbers"));
    EXPECT_THAT(with(18, std::uint64_t{3}), HasSubstr("too few for the 3 sequences"));
    EXPECT_THAT(with(18, ~std::uint64_t{0}), HasSubstr("too few for the 18446744073709551615 sequences"));
    EXPECT_THAT(with(26, std::uint64_t{1}), HasSubstr("16 bytes lie behind"));
    EXPECT_THAT(with(34, std::int32_t{-1}), HasSubstr("sequence 0 has -1 tokens"));
    EXPECT_THAT(with(42, std::int64_t{-8}), HasSubstr("sequence 0 of 2 tokens of int32 begins at byte -8, which reaches outside"));
    EXPECT_THAT(with(50, std::int64_t{12}), HasSubstr("sequence 1 of 3 tokens of int32 begins at byte 12, which reaches outside"));
    EXPECT_THAT(with(50, std::int64_t{1} << 62), HasSubstr("reaches outside"));
    EXPECT_THAT(with(58, std::int64_t{1}), HasSubstr("document index 0 is 1"));
    EXPECT_THAT(with(74, std::int64_t{3}), HasSubstr("document index 2 is 3"));
    EXPECT_EQ(with(58, std::int64_t{0}), "accepted");

    tests::write_file(path + ".idx", index.substr(0, 20));
    EXPECT_THAT(refusal(path), HasSubstr("ends after 20 of the 34 bytes"));
    tests::write_file(path + ".idx", "");
    EXPECT_THAT(refusal(path), HasSubstr("ends after 0 of"));
    std::remove((path + ".idx").c_str());
    EXPECT_THAT(refusal(path + ".bin"), AllOf(HasSubstr(path + ".idx"), HasSubstr("No such file")));
    EXPECT_THAT(refusal(path), HasSubstr("cannot be opened: No such file"));
    EXPECT_THAT(refusal(testing::TempDir()), HasSubstr("is no regular file"));
}

TEST_F(Data, CutAndFlippedFilesNeverDoWorseThanAMessage) {
    std::mt19937 random(5);
    IndexedFiles<std::uint16_t> files{8, {}, {}};
    for (int i = 0; i < 12; ++i) files.sequences.emplace_back(random() % 20, std::uint16_t{7});
    const std::string data = files.data(), index = files.index();
    int accepted = 0, refused = 0;
    for (int round = 0; round < 600; ++round) {
        std::string broken_index = index, broken_data = data;
        if (round % 3 == 0) broken_index.resize(random() % broken_index.size());
        if (round % 3 == 1) broken_data.resize(random() % broken_data.size());
        for (auto flips = random() % 4; flips > 0 && !broken_index.empty(); --flips)
            broken_index[random() % broken_index.size()] ^= static_cast<char>(1U << random() % 8);
        tests::write_file(path + ".idx", broken_index);
        tests::write_file(path + ".bin", broken_data);
        try {
            const auto opened = open_token_data(path, 1000);
            std::vector<std::int32_t> tokens(static_cast<std::size_t>(std::min<std::int64_t>(opened->tokens().value(), 1000)));
            opened->read(0, tokens);
            for (const auto id : tokens) ASSERT_TRUE(id >= 0 && id < 1000);
            ++accepted;
        } catch (const ConfigError& error) {
            ASSERT_THAT(error.what(), HasSubstr(path));
            ++refused;
        }
    }
    EXPECT_GT(accepted, 0);
    EXPECT_GT(refused, 200);
}

TEST_F(Data, AFileThatIsShortenedMeanwhileIsAnErrorOfTheRun) {
    tests::write_file(path, std::string(5000, 'x'));
    const auto data = open_token_data(path, 256);
    tests::write_file(path, "x");
    std::vector<std::int32_t> tokens(100);
    EXPECT_THROW(data->read(4000, tokens), RunError);
}

TEST(SyntheticStream, EveryTokenIsAFunctionOfSeedAndPlace) {
    const SyntheticStream stream(7, 512), same(7, 512), other(8, 512);
    std::vector<std::int32_t> whole(9000), part(500), others(9000);
    stream.read(0, whole);
    other.read(0, others);
    EXPECT_NE(whole, others);
    for (const std::int64_t first : {0, 1, 4000, 4096, 8191}) {
        same.read(first, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
    }
    for (const auto id : whole) EXPECT_TRUE(id >= 0 && id < 256);
}

TEST(SyntheticStream, OneOfFourIdsFollowsEach) {
    const SyntheticStream stream(3, 40);
    std::vector<std::int32_t> tokens(4096);
    stream.read(0, tokens);
    std::vector<std::vector<int>> followers(40, std::vector<int>(40));
    for (std::size_t i = 1; i < tokens.size(); ++i)
        ++followers[static_cast<std::size_t>(tokens[i - 1])][static_cast<std::size_t>(tokens[i])];
    for (const auto& row : followers) EXPECT_LE(std::count_if(row.begin(), row.end(), [](int n) { return n > 0; }), 4);
}

}  // namespace
}  // namespace mgplan::runtime::token_data_test

// Sizes of vocabularies from files and from names.
#include "formats/megatron/tokenizer_sizes.hpp"

#include <ctime>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace mgplan::formats::tokenizer_sizes_test {
namespace {

using testing::HasSubstr;

/// A SentencePiece model of so many pieces, and a trainer's settings behind them as real ones have.
std::string sentencepiece(int pieces) {
    std::string bytes;
    for (int i = 0; i < pieces; ++i) bytes += std::string("\x0a\x08\x0a\x01x\x15\x00\x00\x00", 9) + std::string(1, '\0');
    return bytes + std::string("\x12\x02\x18\x01", 4);
}

class TokenizerFolder : public testing::Test {
protected:
    void SetUp() override { std::filesystem::create_directories(folder_); }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    void write(const std::string& name, const std::string& bytes) { std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes; }

    std::string folder_ = testing::TempDir() + "mgplan_tokenizers_" + std::to_string(::getpid());
};

TEST_F(TokenizerFolder, IsReadBeforeNames) {
    write("gpt2-vocab.json", R"({"a": 0, "b": 1, "c": 2})");
    const auto found = find_vocabulary({"GPT2BPETokenizer", "", "/elsewhere/gpt2-vocab.json"}, folder_);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->tokens, 3);
    EXPECT_THAT(found->source, HasSubstr("read from --vocab-file"));
    EXPECT_EQ(find_vocabulary({"GPT2BPETokenizer", "", "/elsewhere/gpt2-vocab.json"}, "")->tokens, 50257) << "no folder to read from";
}

TEST_F(TokenizerFolder, HoldsTokenizersOfThreeKinds) {
    write("my.model", sentencepiece(7));
    EXPECT_EQ(find_vocabulary({"Llama2Tokenizer", "my.model", ""}, folder_)->tokens, 7);
    std::filesystem::create_directories(folder_ + "/mine");
    write("mine/tokenizer.json", R"({"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 1}, {"id": 5}]})");
    EXPECT_EQ(find_vocabulary({"HuggingFaceTokenizer", "mine", ""}, folder_)->tokens, 6);
    write("broken.model", "no protocol buffer");
    EXPECT_FALSE(find_vocabulary({"Llama2Tokenizer", "broken.model", ""}, folder_));
}

TEST(TokenizerSizes, GiveUpAtOnceOnDeepFiles) {
    std::string deep;
    for (int i = 0; i < 1'000'000; ++i) deep += "{\"model\":";
    const std::clock_t begin = std::clock();
    EXPECT_FALSE(json_vocabulary_size(deep));
    EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC / 20);
}

TEST(TokenizerSizes, KnowNamesByTheirLongestBeginning) {
    const auto tokens = [](const std::string& name) {
        const auto found = find_vocabulary({"HuggingFaceTokenizer", name, ""}, "");
        return found ? found->tokens : 0;
    };
    EXPECT_EQ(tokens("meta-llama/Llama-3.1-8B"), 128256);
    EXPECT_EQ(tokens("meta-llama/Llama-2-70b-hf"), 32000);
    EXPECT_EQ(tokens("Qwen/Qwen2.5-72B"), 151665);
    EXPECT_EQ(tokens("/models/Qwen3-30B-A3B/"), 151669);
    EXPECT_EQ(tokens("my/own"), 0);
    EXPECT_EQ(tokens("$TOKENIZER_MODEL"), 0);
    EXPECT_EQ(find_vocabulary({"Llama2Tokenizer", "", ""}, ""), std::nullopt) << "a type alone names no file";
    for (const auto& known : known_tokenizers()) {
        EXPECT_GT(known.tokens, 1000) << known.name;
        EXPECT_FALSE(known.source.empty()) << known.name;
    }
}

TEST(TokenizerSizes, CountNothingInOtherBytes) {
    for (const std::string& bytes :
         {std::string(), std::string("\x0a"), std::string("\x0a\x7f"), std::string(20, '\xff'), std::string("\x0f")})
        EXPECT_EQ(sentencepiece_size(bytes), std::nullopt);
    for (const char* text : {"", "[]", "{}", "{\"a\": \"b\"}", "{", "{\"a\": -1}"})
        EXPECT_EQ(json_vocabulary_size(text), std::nullopt) << text;
}

}  // namespace
}  // namespace mgplan::formats::tokenizer_sizes_test

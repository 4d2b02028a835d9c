#include "plan/text/terminal_text.hpp"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace mgplan::terminal_text_test {
namespace {

TEST(TerminalText, KeepsWhatIsHarmless) {
    for (const char* text : {"", "a line\n\tand another", "table\r\nrow", "0.5 µs … ├─┤ 模型 😀 é", "¡ÿ"})
        EXPECT_EQ(terminal_text(text), text);
}

TEST(TerminalText, WritesWhatATerminalObeysAsItsNumber) {
    EXPECT_EQ(terminal_text("\x1b[2Jgone"), "\\u001b[2Jgone");
    EXPECT_EQ(terminal_text("\x1b]0;title\x07"), "\\u001b]0;title\\u0007");
    EXPECT_EQ(terminal_text("done\rundone"), "done\\u000dundone");
    EXPECT_EQ(terminal_text("end\r"), "end\\u000d");
    EXPECT_EQ(terminal_text("a\x7f\b"), "a\\u007f\\u0008");
    EXPECT_EQ(terminal_text(std::string("a\0b", 3)), "a\\u0000b");
    EXPECT_EQ(terminal_text("\xc2\x9b"
                            "2J"),
              "\\u009b2J");  // CSI as one character
    EXPECT_EQ(terminal_text("exe.\xe2\x80\xae"
                            "cod"),
              "exe.\\u202ecod");  // from right to left
    EXPECT_EQ(terminal_text("\xe2\x80\xa8"), "\\u2028");
}

TEST(TerminalText, WritesBytesThatAreNoUtf8AsNumbers) {
    EXPECT_EQ(terminal_text("\x9b"
                            "2J"),
              "\\x9b2J");  // CSI of a terminal that reads Latin-1
    EXPECT_EQ(terminal_text("\xff\xc3"), "\\xff\\xc3");
    EXPECT_EQ(terminal_text("\xc0\x9b"), "\\xc0\\x9b");           // longer than needed
    EXPECT_EQ(terminal_text("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");  // the same
    EXPECT_EQ(terminal_text("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a pair
    EXPECT_EQ(terminal_text("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
    EXPECT_EQ(terminal_text("\xe2\x1b["), "\\xe2\\u001b[");
}

TEST(TerminalText, IsTheSameInPieces) {
    std::mt19937 random(7);
    const std::string letters = "ab\n\r\t\x1b\x7f\xc2\x9b\xe2\x80\xae\xf0\x9f\x98\x80\xff";
    for (int turn = 0; turn < 2000; ++turn) {
        std::string text;
        for (int i = 0; i < 20; ++i) text += letters[random() % letters.size()];
        TerminalText pieces;
        std::string out;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t size = 1 + random() % 4;
            pieces.append(std::string_view(text).substr(at, size), out);
            at += size;
        }
        pieces.finish(out);
        EXPECT_EQ(out, terminal_text(text));
        for (const char c : out) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t' || c == '\r');
        EXPECT_EQ(out.find("\xc2\x9b"), std::string::npos);
    }
}

}  // namespace
}  // namespace mgplan::terminal_text_test

#include "reports/table.hpp"

#include <algorithm>
#include <sstream>

#include <gtest/gtest.h>

namespace mgplan::reports::table_test {
namespace {

Table fruit() {
    Table table({{"fruit", Align::left}, {"count"}, {"note", Align::left}});
    table.add_row({"apple", "12", "green"});
    table.add_row({"fig", "1024"});
    return table;
}

TEST(Table, AlignsNamesLeftAndNumbersRight) {
    EXPECT_EQ(fruit().to_text(),
              "fruit  count  note\n"
              "-----  -----  -----\n"
              "apple     12  green\n"
              "fig     1024\n");
}

TEST(Table, CountsCharactersAndNotBytes) {
    EXPECT_EQ(display_width("µs"), 2U);
    EXPECT_EQ(display_width("日本"), 4U);
    EXPECT_EQ(display_width("e\u0301"), 1U);
    EXPECT_EQ(display_width("\xff\xc3"), 2U);  // no UTF-8
    Table table({{"unit", Align::left}, {"n"}});
    table.add_row({"µs", "1"});
    table.add_row({"日本", "2"});
    EXPECT_EQ(table.to_text(), "unit  n\n----  -\nµs    1\n日本  2\n");
}

TEST(Table, WrapsLeftAlignedColumnsAtSpacesToFitTheWidth) {
    Table table({{"n"}, {"text", Align::left}});
    table.add_row({"1", "the quick brown fox jumps over the dog"});
    EXPECT_EQ(table.to_text(23),
              "n  text\n"
              "-  --------------------\n"
              "1  the quick brown fox\n"
              "   jumps over the dog\n");
}

TEST(Table, CutsWordsLongerThanTheirColumn) {
    Table table({{"text", Align::left}});
    table.add_row({std::string(30, 'x') + " y"});
    EXPECT_EQ(table.to_text(13), "text\n-------------\nxxxxxxxxxxxxx\nxxxxxxxxxxxxx\nxxxx y\n");
    EXPECT_EQ(table.to_text(5), table.to_text(13)) << "no column is cut to less";
}

TEST(Table, NoLineIsWiderThanAskedWhereTextCanWrap) {
    Table table({{"a", Align::left}, {"b", Align::left}, {"n"}});
    table.add_row({std::string(200, 'a'), "many words that go on and on until the line is far too long for a terminal", "123"});
    for (const std::size_t width : {33U, 50U, 100U}) {
        std::istringstream lines(table.to_text(width));
        std::size_t widest = 0;
        for (std::string line; std::getline(lines, line);) widest = std::max(widest, display_width(line));
        EXPECT_LE(widest, width);
        EXPECT_GE(widest, width - 3);
    }
}

TEST(Table, KeepsNumbersWholeEvenWhenTheTableIsTooWide) {
    Table table({{"first"}, {"second"}});
    table.add_row({"1234567890", "1234567890"});
    EXPECT_EQ(table.to_text(10), "     first      second\n----------  ----------\n1234567890  1234567890\n");
}

TEST(Table, ShowsLineBreaksAsLinesAndOtherControlCharactersAsQuestionMarks) {
    Table table({{"a", Align::left}, {"b"}});
    table.add_row({"x\ny", "1\t2\x1b"});
    EXPECT_EQ(table.to_text(), "a     b\n-  ----\nx  1?2?\ny\n");
}

TEST(Table, BoldHeaderOnlyWhenAsked) {
    EXPECT_EQ(fruit().to_text().find('\x1b'), std::string::npos);
    EXPECT_EQ(fruit().to_text(100, Style::bold).rfind("\x1b[1mfruit  count  note\x1b[0m\n", 0), 0U);
}

TEST(Table, CsvQuotesWhatNeedsQuotes) {
    Table table({{"name, full"}, {"n"}});
    table.add_row({"say \"hi\"", "1,024"});
    table.add_row({"two\nlines"});
    table.add_row({"plain", "7"});
    EXPECT_EQ(table.to_csv(), "\"name, full\",n\r\n\"say \"\"hi\"\"\",\"1,024\"\r\n\"two\nlines\",\r\nplain,7\r\n");
}

TEST(Table, MarkdownShowsCellsLetterByLetter) {
    Table table({{"name", Align::left}, {"#"}});
    table.add_row({"t*3|<b>", "1"});
    table.add_row({"two\nlines"});
    EXPECT_EQ(table.to_markdown(), "| name | \\# |\n| :--- | ---: |\n| t\\*3\\|\\<b\\> | 1 |\n| two<br>lines |  |\n");
}

TEST(Table, RefusesMoreCellsThanColumns) {
    Table table({{"one"}});
    EXPECT_THROW(table.add_row({"1", "2"}), std::logic_error);
}

}  // namespace
}  // namespace mgplan::reports::table_test

// The page of `simulate --html` in headless Chromium: its scripts run without an error and answer the pointer, and it can be seen.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/core.h>

#include "browser.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::page_in_browser_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PageInBrowser, RunsItsScriptsWithoutAnErrorAndCanBeSeen) {
    if (std::string_view(MGPLAN_CHROMIUM).empty()) GTEST_SKIP() << "chromium is not installed";
    const TempFolder folder;
    const std::string page = folder.path("page.html");
    ASSERT_EQ(say("simulate --world 32 --model llama3-8b --tp 2 --pp 4 --vpp 2 --micro-batch 1 --global-batch 64 --html " + page).code,
              kDone);
    // A hand on the pointer: the script of the test stands behind those of the page and writes what they show.
    std::string html = tests::text_of_file(page);
    ASSERT_THAT(html, HasSubstr("</body>"));
    html.insert(html.rfind("</body>"), R"(<script>
const touch = (target, type, x, y) => target.dispatchEvent(new PointerEvent(type, {bubbles: true, clientX: x, clientY: y}));
const shown = {};
const pipeline = document.getElementById("pipeline-0"), area = pipeline.getBoundingClientRect();
touch(pipeline, "pointermove", area.left + area.width * 0.07, area.top + 6);
shown.pass = pipeline.parentNode.querySelector(".bubble").textContent;
touch(document.querySelectorAll("#ranks .rank")[9], "pointerover", 0, 0);
shown.rank = document.getElementById("rank-text").textContent;
shown.others = document.querySelectorAll("#ranks .rank.off").length;
const curve = document.getElementById("curve"), box = curve.getBoundingClientRect();
touch(curve, "pointermove", box.left + box.width / 2, box.top + 20);
shown.memory = document.getElementById("tip").textContent;
const result = document.createElement("pre");
result.id = "shown";
result.textContent = JSON.stringify(shown);
document.body.appendChild(result);
</script>
)");
    const std::string touched = folder.path("touched.html");
    std::ofstream(touched) << html;
    const Browsed dom = browse(folder, touched, "--virtual-time-budget=4000 --window-size=1200,900 --dump-dom");
    ASSERT_EQ(dom.status, 0) << dom.log;
    EXPECT_THAT(dom.log, Not(HasSubstr("CONSOLE")));
    const auto at = dom.out.find("id=\"shown\"");
    ASSERT_NE(at, std::string::npos) << dom.log;
    const std::string shown = dom.out.substr(at);
    EXPECT_THAT(shown, HasSubstr("stage 0: forward of microbatch 0, chunk 0: "));
    EXPECT_THAT(shown, HasSubstr("rank 9: tp 8 9; dp 9 11 13 15; pp 1 9 17 25"));
    EXPECT_THAT(shown, HasSubstr("\"others\":30"));  // all but its tp group
    EXPECT_THAT(shown, HasSubstr("activations"));

    const std::string picture = folder.path("page.png");
    const Browsed seen = browse(folder, page, "--virtual-time-budget=4000 --window-size=1200,1800 --screenshot=" + picture);
    ASSERT_EQ(seen.status, 0) << seen.log;
    EXPECT_THAT(seen.log, Not(HasSubstr("CONSOLE")));
    const std::string png = tests::text_of_file(picture);
    ASSERT_GT(png.size(), 40'000U);  // an empty page of this size has a few thousand bytes
    EXPECT_EQ(png.substr(1, 3), "PNG");
    const auto number = [&](std::size_t place) {
        std::uint32_t value = 0;
        for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png[place + i]);
        return value;
    };
    EXPECT_EQ(number(16), 1200U);
    EXPECT_EQ(number(20), 1800U);
}

TEST(PageInBrowser, NoticesAnErrorInAScript) {
    if (std::string_view(MGPLAN_CHROMIUM).empty()) GTEST_SKIP() << "chromium is not installed";
    const TempFolder folder;
    const std::string page = folder.path("broken.html");
    std::ofstream(page) << "<!DOCTYPE html><html><body><script>nowhere();</script></body></html>";
    EXPECT_THAT(browse(folder, page, "--dump-dom").log, HasSubstr("CONSOLE"));
}

}  // namespace
}  // namespace mgplan::cli::testing::page_in_browser_test

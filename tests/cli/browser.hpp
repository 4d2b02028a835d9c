#pragma once
// Pages in headless Chromium: what they log, what their scripts leave in the document, and how they look.

#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/text_of_file.hpp"

namespace mgplan::cli::testing {

/// A folder of this test run, removed at the end.
class TempFolder {
public:
    TempFolder() : path_(::testing::TempDir() + "mgplan_browser_" + std::to_string(::getpid())) {
        std::filesystem::create_directories(path_);
    }
    ~TempFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

/// What Chromium writes to stdout, and its log.
struct Browsed {
    int status;
    std::string out, log;
};

inline Browsed browse(const TempFolder& folder, const std::string& page, const std::string& options) {
    const std::string out = folder.path("out.txt"), log = folder.path("log.txt");
    // As root it has no sandbox; the page is our own.
    const std::string command = fmt::format(
        "timeout 100 '{}' --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars "
        "--enable-logging=stderr "
        "--user-data-dir='{}' {} 'file://{}' >'{}' 2>'{}' </dev/null",
        MGPLAN_CHROMIUM, folder.path("profile"), options, page, out, log);
    const int status = std::system(command.c_str());
    return {status, tests::text_of_file(out), tests::text_of_file(log)};
}

/// The page with a script behind its own: a function that returns what it shows, `null` first where the page answers later.
inline std::string with_script(std::string html, const std::string& body) {
    html.insert(html.rfind("</body>"),
                "<script>\nconst result = document.createElement(\"pre\");\nresult.id = \"shown\";\n"
                "document.body.appendChild(result);\nconst say = shown => { result.textContent = JSON.stringify(shown); };\n" +
                    body + "\n</script>\n");
    return html;
}

/// What say() of with_script() was given, as the document holds it.
inline std::string shown_in(const std::string& dom) {
    const std::string begin = "<pre id=\"shown\">";
    const auto at = dom.find(begin);
    if (at == std::string::npos) return {};
    std::string text = dom.substr(at + begin.size(), dom.find("</pre>", at) - at - begin.size());
    for (const auto& [entity, character] : {std::pair{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}}) {
        for (auto place = text.find(entity); place != std::string::npos; place = text.find(entity, place + 1))
            text.replace(place, std::string(entity).size(), character);
    }
    return text;
}

/// Names of the tables that are wider than what shows them, and "page" where the whole page is wider than its window.
inline const std::string kClippedScript = R"(
const clipped = () => Array.from(document.querySelectorAll("table")).filter(table => table.offsetParent !== null &&
  table.getBoundingClientRect().right > Math.min(innerWidth, table.parentElement.getBoundingClientRect().right) + 1)
  .map(table => table.id || table.className || table.textContent.slice(0, 20))
  .concat(document.documentElement.scrollWidth > innerWidth ? ["page"] : []);
)";

}  // namespace mgplan::cli::testing

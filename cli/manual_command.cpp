#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/command_description.hpp"
#include "cli/manual_page.hpp"
#include "cli/options.hpp"

namespace mgplan::cli {

int run_manual(const std::vector<std::string>& args, Console& console, DescribeCommands describe) {
    Options options("manual",
                    "Prints the manual page mgplan(1), which holds every command and option. To read it: mgplan manual --output mgplan.1 "
                    "&& man ./mgplan.1");
    if (!options.parse(args, console.out)) return kDone;
    options.write(console, manual_page(describe(), MGPLAN_VERSION));
    return kDone;
}

}  // namespace mgplan::cli

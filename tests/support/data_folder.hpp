#pragma once

#include <string>

namespace mgplan::tests {

/// The folder tests/ of the project that is tested, without a slash at its end. A function, not a macro on each command line: what
/// the compiler makes of the other files is then the same in every clone.
const std::string& data_folder();

}  // namespace mgplan::tests

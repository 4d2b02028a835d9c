# One static library per room: mgplan_room(NAME SOURCES … DEPENDS …) makes target mgplan_NAME with alias mgplan::NAME.
# The global property MGPLAN_ROOMS lists the names. cmake/install.cmake installs those of them that others may link.
add_library(mgplan_warnings INTERFACE)
# -Wno-restrict: GCC 12 warns about its own std::string (bug 105651).
target_compile_options(mgplan_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)

mgplan_precompiled_headers(mgplan_precompiled
  DEPENDS fmt::fmt nlohmann_json::nlohmann_json
  HEADERS <algorithm> <array> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional> <set> <span> <sstream>
    <string> <string_view> <utility> <vector> <fmt/format.h> <nlohmann/json.hpp>)

function(mgplan_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(mgplan_${name} STATIC ${ROOM_SOURCES})
  add_library(mgplan::${name} ALIAS mgplan_${name})
  set_target_properties(mgplan_${name} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(mgplan_${name} PUBLIC cxx_std_20)
  target_include_directories(mgplan_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include/mgplan>)
  target_link_libraries(mgplan_${name} PUBLIC ${ROOM_DEPENDS} PRIVATE $<BUILD_INTERFACE:mgplan_warnings> ${ROOM_PRIVATE_DEPENDS})
  mgplan_reuse_precompiled(mgplan_${name} mgplan_precompiled)
  set_property(GLOBAL APPEND PROPERTY MGPLAN_ROOMS ${name})
endfunction()

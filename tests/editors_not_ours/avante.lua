-- What a person does: asks, and reads the answer in the sidebar.
local function shown()
  local sidebar = require("avante").get()
  local result = sidebar and sidebar.containers and sidebar.containers.result
  return result and table.concat(vim.api.nvim_buf_get_lines(result.bufnr, 0, -1, false), "\n") or ""
end

vim.cmd("AvanteAsk Hello there")
vim.wait(60000, function()
  return shown():find("to the editor.", 1, true) ~= nil
end)
io.stdout:write(shown())
vim.cmd("qa!")
